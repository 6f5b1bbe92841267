"""The resource in each mode, and what was acknowledged and lost there."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from asyncdlock import LockClient
from harness.clock import now
from harness.experiments.depth.holder import Holder
from harness.experiments.lab import Lab, Track
from harness.experiments.lab.picture import panel
from harness.experiments.lab.resource_view import ResourceView
from harness.experiments.lab.scene import TIMELINE_FILE, slug
from harness.experiments.outcome import Case, Fact
from harness.experiments.trials.intervals import wilson
from harness.experiments.trials.shared_set import RESOURCE_FENCE, Mode, SharedSet, lost
from harness.experiments.trials.verdict import judge
from harness.faults import FaultJournal
from harness.report.timeline import Panel, draw

LOSES, KEEPS = "loses updates", "loses none"


class Arena:
    """One schedule on one resource: its holders, and the case that they make."""

    def __init__(
        self,
        name: str,
        mode: Mode,
        lab: Lab,
        resource: ResourceView,
        client: LockClient,
        session: aiohttp.ClientSession,
        *,
        ttl: float,
    ) -> None:
        self.name = name
        self.mode = mode
        self.key = f"set:{slug(name)}"
        self.client = client
        self.holders: list[Holder] = []
        self.panel: Panel | None = None
        self._folder: Path = lab.folder / slug(name)
        self._resource = resource
        self._shared = SharedSet(resource.url, session, mode)
        self._journal = FaultJournal(now())
        self._ttl = ttl

    def holder(self, name: str) -> Holder:
        holder = Holder(Track(name, self.key), self._journal, self.client, self._shared, ttl=self._ttl)
        self.holders.append(holder)
        return holder

    @property
    def acknowledged(self) -> list[str]:
        """The updates that the resource confirmed."""
        return [element for holder in self.holders for element in holder.acknowledged]

    async def lost(self) -> list[str]:
        """Those of them that are not in the set.

        :raises aiohttp.ClientError: the resource does not answer.
        """
        return lost(self.acknowledged, (await self._shared.read(self.key)).elements)

    async def case(self, expected: str, schedule: str) -> Case:
        """Count what was lost, and let the checkers look at the log as well.

        :raises aiohttp.ClientError: the resource does not answer.
        """
        decisions = await self._resource.decisions(self.key, self._journal.origin)
        acknowledged, missing = self.acknowledged, await self.lost()
        tracks = [holder.track for holder in self.holders]
        config: Mapping[str, Any] = {"mode": self.mode, "ttl": self._ttl, "fence": RESOURCE_FENCE[self.mode]}
        after = decisions[0].seq - 1 if decisions else 0
        judged = judge(
            self._folder, tracks, decisions, origin=self._journal.origin, config=config, after=after
        )
        self.panel = panel(self.name, tracks, decisions, [], ttl=self._ttl, subtitle=_told(missing))
        if len(tracks) == 2:
            (self._folder / TIMELINE_FILE).write_text(draw([self.panel]))
        facts: dict[str, Fact] = {
            "schedule": schedule,
            "acknowledged": len(acknowledged),
            "lost": len(missing),
            "share, 95 %": _share(missing, acknowledged) if len(acknowledged) > 2 else None,
            "refused (409)": sum(holder.refused for holder in self.holders),
            "conflicts (412)": sum(holder.conflicts for holder in self.holders),
            "the log looks": judged.verdict,
        }
        return Case(
            name=self.name,
            expected=expected,
            observed=LOSES if missing else KEEPS,
            facts=facts,
            findings=[f"acknowledged, and not in the set: {element}" for element in missing[:20]],
            folder=self._folder.name,
        )


def _told(missing: Sequence[str]) -> str:
    return f"lost: {', '.join(missing)}" if missing else "nothing acknowledged was lost"


def _share(missing: Sequence[str], acknowledged: Sequence[str]) -> str:
    return f"{len(missing) / len(acknowledged):.1%} ({wilson(len(missing), len(acknowledged))})"
