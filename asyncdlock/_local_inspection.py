"""Inspection: adds what a process knows of its own tasks that wait behind one place on the server."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from asyncdlock.backend import Backend, Inspectable
from asyncdlock.types import LockInfo, Waiter, label_of

if TYPE_CHECKING:
    from asyncdlock._local_place import LocalPlace


class InspectedQueue(ABC):
    """The operator's part of the local queue."""

    _backend: Backend
    _places: "dict[str, LocalPlace]"

    @abstractmethod
    def _end_lease(self, key: str, place: "LocalPlace") -> None: ...

    @property
    def label(self) -> str:
        return self._inspectable.label

    @label.setter
    def label(self, label: str) -> None:
        self._inspectable.label = label

    @property
    def _inspectable(self) -> Inspectable:
        return cast(Inspectable, self._backend)

    async def inspect(self, key: str) -> LockInfo:
        """What the server knows, and what this process knows of its own tasks."""
        found = await self._inspectable.inspect(key)
        place = self._places.get(key)
        if place is None:
            return found
        here = tuple(
            Waiter(owner=claim.owner, label=label_of(claim.owner) or self.label)
            for claim, future in place.waiters.values()
            if not future.done()
        )
        if place.remote is not None and found.owner == place.remote.claim.owner:
            return replace(
                found,
                owner=place.holder,
                label=label_of(place.holder) or self.label,
                fence=place.remote.fence + place.used,
                last_fence=place.remote.fence + place.remote.reserved,
                waiters=here + found.waiters,
            )
        owners = [waiter.owner for waiter in found.waiters]
        behind = owners.index(place.holder) + 1 if place.holder in owners else len(owners)
        return replace(found, waiters=found.waiters[:behind] + here + found.waiters[behind:])

    async def force_release(self, key: str, above: int) -> bool:
        place = self._places.get(key)
        remote = None if place is None else place.remote
        if place is not None and remote is not None:
            place.doubtful = True  # what was reserved for the holder is handed on no more
        held = await self._inspectable.force_release(key, above)
        if place is not None and remote is not None and place.remote is remote:
            self._end_lease(key, place)  # whoever waits here asks the server
        return held

    def keys(self, start: str) -> AsyncIterator[str]:
        return self._inspectable.keys(start)
