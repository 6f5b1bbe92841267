"""Lock servers whose clocks can be wrong, each with one of its own."""

import contextlib
from collections.abc import AsyncIterator, Sequence

from harness import servers
from harness.faults import FakeClock
from harness.lab.lab import Lab


@contextlib.asynccontextmanager
async def open_clocked_nodes(
    lab: Lab, rates: Sequence[float]
) -> AsyncIterator[tuple[servers.RedisNodes, list[FakeClock]]]:
    """Valkey nodes whose clocks run at these rates: Debian's redis-server hangs under libfaketime."""
    async with contextlib.AsyncExitStack() as stack:
        clocks = [stack.enter_context(FakeClock(rate=rate)) for rate in rates]

        def build() -> servers.RedisNodes:
            environments = [clock.environment for clock in clocks]
            return servers.RedisNodes(
                [servers.RedisNode(flavour="valkey", environment=one) for one in environments]
            )

        async with lab.loading.one():
            nodes = await stack.enter_async_context(servers.running(build))
        yield nodes, clocks
