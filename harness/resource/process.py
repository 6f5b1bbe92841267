"""The fenced resource as a child process: what runs and experiments write to."""

import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal

import harness
from harness.resource.client import ResourceClient, Unanswered
from harness.servers.ports import free_port
from harness.servers.server import Server, running

Fence = Literal["on", "writes", "off"]


class ResourceProcess(Server):
    """A running resource. `kill()` and `restart()` keep port and store, hence the marks."""

    kind = "resource"

    def __init__(
        self,
        *,
        store: str | None = None,
        fence: Fence = "on",
        log: bool = True,
        options: Mapping[str, str] | None = None,
    ) -> None:
        # The child runs in its own folder, where a clone that is not installed would not be found.
        super().__init__(environment={"PYTHONPATH": str(Path(harness.__file__).parents[1])})
        self.port = free_port()
        self.store = store or f"sqlite:{self.data / 'resource.db'}"
        self.fence = fence
        self._options = {"--log": "on" if log else "off", **(options or {})}

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def _command(self) -> list[str]:
        words = ["--listen", self.address, "--store", self.store, "--fence", self.fence]
        for name, value in self._options.items():
            words += [name, value]
        return [sys.executable, "-m", "harness", "resource", *words]

    async def _answers(self) -> bool:
        try:
            async with ResourceClient(self.url) as client:
                return (await client.healthz()).status == 200
        except Unanswered:
            return False


def spawn(
    *,
    store: str | None = None,
    fence: Fence = "on",
    log: bool = True,
    options: Mapping[str, str] | None = None,
) -> AbstractAsyncContextManager[ResourceProcess]:
    """A resource for the length of an `async with`, by default on a SQLite file that goes with it.

    `options` are further command-line flags, such as `{"--max-body": "4096"}`.

    :raises ServerFailed: it did not start.
    """
    return running(lambda: ResourceProcess(store=store, fence=fence, log=log, options=options))
