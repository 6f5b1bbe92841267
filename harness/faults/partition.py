"""Cuts or slows links: all bytes or those of one direction, for as long as a body runs."""

import contextlib
from collections.abc import AsyncIterator, Iterable

from harness.faults.journal import FaultJournal
from harness.faults.tcp_link import Link, Way


@contextlib.asynccontextmanager
async def partition(
    journal: FaultJournal, links: Iterable[Link], *ways: Way, lose: bool = False
) -> AsyncIterator[None]:
    """Nothing passes the links, in the given directions, by default in both.

    What is sent meanwhile arrives when the partition heals, as with TCP; with `lose` it never does,
    and connections that lost something are broken off at the end. A request that is applied and
    whose reply is lost is `partition(journal, [link], Way.TO_CLIENT, lose=True)`.
    """
    cut = list(links)
    for link in cut:
        if lose:
            link.lose(*ways)
        else:
            link.hold(*ways)
    with journal.fault("partition", **_details(cut, ways), **({"bytes": "lost"} if lose else {})):
        try:
            yield
        finally:
            for link in cut:
                link.mend(*ways)


@contextlib.asynccontextmanager
async def delay(
    journal: FaultJournal, links: Iterable[Link], seconds: float, *ways: Way
) -> AsyncIterator[None]:
    """Everything sent meanwhile arrives `seconds` later; what is on its way at the end stays late."""
    slow = list(links)
    for link in slow:
        link.lag(seconds, *ways)
    with journal.fault("delay", **_details(slow, ways), seconds=seconds):
        try:
            yield
        finally:
            for link in slow:
                link.lag(0.0, *ways)


def _details(links: list[Link], ways: tuple[Way, ...]) -> dict[str, str]:
    details = {"who": ", ".join(link.name for link in links)}
    if len({*ways}) == 1:
        details["way"] = ways[0].value
    return details
