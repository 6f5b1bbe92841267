"""Renewing many leases: one `sync` per session answers for all, plus a look at each node not guarded yet.

Pings are not trusted for this: a member that is cut off from its leader goes on answering them.
"""

import asyncio
from collections.abc import Sequence

from kazoo.exceptions import NoNodeError, SessionExpiredError
from kazoo.protocol.serialization import GetData, Sync

from asyncdlock.backends.zookeeper.place import Place
from asyncdlock.backends.zookeeper.session import Session
from asyncdlock.backends.zookeeper.wire import Future
from asyncdlock.types import LeaseState


async def renewed(places: Sequence[Place | None], root: str) -> list[LeaseState]:
    """What became of each lease. `root` is any node that all of them may read.

    A session that is without a server is UNKNOWN at once; waiting is the caller's business.
    """
    states = [LeaseState.LOST if place is None or place.is_lost else LeaseState.UNKNOWN for place in places]
    asking = _Asking(root)
    asked = [
        (index, place)
        for index, place in enumerate(places)
        if place is not None and states[index] is LeaseState.UNKNOWN and asking.ask(place)
    ]
    if not asked:
        return states
    await asking.answered()
    touched = []
    for index, place in asked:
        states[index] = asking.state_of(place)
        if states[index] is LeaseState.RENEWED and place.granted and not place.guarded:
            touched.append(index)  # an event for the node came before the answer: see what happened to it
    if touched:
        for index, state in zip(touched, await renewed([places[i] for i in touched], root), strict=True):
            states[index] = state
    return states


class _Asking:
    """The requests of one round."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._syncs: dict[Session, Future] = {}
        self._looks: dict[Place, Future] = {}

    def ask(self, place: Place) -> bool:
        """Send what the state of `place` depends on; False when its session is without a server."""
        session = place.session
        wire = None if session is None else session.wire_now()
        if session is None or wire is None:
            return False
        if session not in self._syncs:
            self._syncs[session] = wire.send(Sync(self._root))
        if not place.guarded:
            place.guarded = True
            session.watch(place.path, place.unguard)
            self._looks[place] = wire.send(GetData(place.path, True))
        return True

    async def answered(self) -> None:
        try:
            await asyncio.wait([*self._syncs.values(), *self._looks.values()])
        finally:
            for place, look in self._looks.items():
                if not look.done() or look.exception() is not None:
                    place.guarded = False

    def state_of(self, place: Place) -> LeaseState:
        if place.session is None:
            return LeaseState.LOST  # given back in the meantime
        sync = self._syncs.get(place.session)
        if sync is None:
            return LeaseState.UNKNOWN  # and taken again, in another session
        answers = [sync]
        if place in self._looks:
            answers.append(self._looks[place])
        for answer in answers:
            error = answer.exception()
            if isinstance(error, NoNodeError | SessionExpiredError):
                return LeaseState.LOST
            if error is not None:
                return LeaseState.UNKNOWN
        return LeaseState.RENEWED
