"""?topology=cluster: which node serves a key, and what to do when that changes.

A lock and its companions share a slot, so every script runs on one node. Waiters are told by
sharded messages: one channel per key and client, in the key's own slot.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Unpack

from asyncdlock._backoff import jittered
from asyncdlock.backends.redis.keys import companion, slot_of
from asyncdlock.backends.redis.node import Node, known
from asyncdlock.backends.redis.replies import Moved, OutcomeUnknown, indefinite
from asyncdlock.backends.redis.scripts import Script
from asyncdlock.backends.redis.wire import Opener, WireOptions
from asyncdlock.errors import BackendError, BackendUnavailable
from asyncdlock.types import Claim

Address = tuple[str, int]

# A replica needs the cluster's node timeout to notice, and a vote, to take over from its primary.
_FAILOVER_PATIENCE = 10.0


class _Search:
    """Where a slot went, for one request that found it gone: begins with the first failure."""

    __slots__ = ("_delays", "_give_up", "_slot", "_slots", "certain")

    def __init__(self, slots: dict[int, Address], slot: int) -> None:
        self._slots = slots
        self._slot = slot
        self._delays = jittered(0.02, 0.5)
        self._give_up = time.monotonic() + _FAILOVER_PATIENCE
        self.certain = True
        """Whether none of the tries can have been carried out."""

    async def after(self, failure: BackendError) -> None:
        """Learn from the failure of a try, and return when the next one may start.

        :raises BackendUnavailable: no node took over in time.
        :raises BackendError: another node could not do better.
        """
        delay = 0.0
        self.certain = self.certain and failure.definite
        if isinstance(failure, Moved):
            self._slots[self._slot] = failure.host, failure.port
        elif not isinstance(failure, BackendUnavailable):
            raise failure if self.certain or isinstance(failure, OutcomeUnknown) else indefinite(failure)
        else:
            self._slots.pop(self._slot, None)  # ask who serves it now; the others may be well
            delay = next(self._delays)
        if time.monotonic() + delay > self._give_up:
            raise BackendUnavailable(str(failure), definite=self.certain) from failure
        await asyncio.sleep(delay)


class Cluster:
    """Runs scripts on the node that serves a key."""

    publish_verb = "SPUBLISH"
    count_verb = "SHARDNUMSUB"
    stays_listening = False

    def __init__(
        self,
        seeds: Sequence[Address],
        opener_to: Callable[[str, int], Opener],
        **options: Unpack[WireOptions],
    ) -> None:
        self._seeds = list(seeds)
        self._opener_to = opener_to
        self._options = options
        self._nodes: dict[Address, Node] = {}
        self._slots: dict[int, Address] = {}
        self._discovery: asyncio.Task[None] | None = None
        self._channels: dict[str, Address] = {}
        self._subscribing: dict[str, asyncio.Task[None]] = {}
        # Channels that nobody needs any more, and whose subscription is under way.
        self._unwanted: set[str] = set()
        self._told: Callable[[bytes], None] | None = None
        self._lost: Callable[[], None] | None = None

    @property
    def commands(self) -> int:
        return sum(node.commands for node in self._nodes.values())

    def send(self, script: Script, key: str, request: bytes) -> Awaitable[Any]:
        return self.run(script, key, request)

    async def run_again(self, error: BackendError, script: Script, key: str, request: bytes) -> Any:
        raise error  # `run` has done what could be done

    async def run(self, script: Script, key: str, request: bytes) -> Any:
        """Run `script` on the node of `key`, following it wherever it went.

        :raises BackendError: as a single server does; BackendUnavailable when no node took over in time.
        """
        slot = slot_of(key)
        search: _Search | None = None
        while True:
            try:
                reply = await self._run_once(slot, script, key, request)
            except BackendError as error:
                search = search or _Search(self._slots, slot)
                await search.after(error)
            else:
                return reply if search is None else known(reply, script, key, search.certain)

    async def _run_once(self, slot: int, script: Script, key: str, request: bytes) -> Any:
        node = await self._node_of(slot)
        try:
            return await node.run(script, key, request)
        except Moved as moved:
            if not moved.ask:
                raise
            # On its way: a key that is not here any more is there, or will be (TRYAGAIN).
            return await self._node_at((moved.host, moved.port)).run_asking(script, request)

    async def _node_of(self, slot: int) -> Node:
        address = self._slots.get(slot)
        if address is None:
            await self._discover()
            address = self._slots.get(slot)
            if address is None:
                raise BackendUnavailable(f"no node of the cluster serves slot {slot}", definite=True)
        return self._node_at(address)

    def _node_at(self, address: Address) -> Node:
        node = self._nodes.get(address)
        if node is None:
            # No patience with a node that is down: another may serve its slots already.
            node = Node(self._opener_to(*address), reconnect_for=0.0, **self._options)
            self._nodes[address] = node
            node.wire.on_push = self._pushed
            node.wire.on_lost = lambda: self._node_lost(address)
        return node

    async def _discover(self) -> None:
        """Ask the nodes that we know, then those of the URL, who serves what; one asks for all."""
        if self._discovery is None:
            self._discovery = asyncio.get_running_loop().create_task(
                self._ask_around(), name="discover cluster"
            )
        try:
            await asyncio.shield(self._discovery)
        finally:
            if self._discovery is not None and self._discovery.done():
                self._discovery = None

    async def _ask_around(self) -> None:
        failure: BackendError | None = None
        for address in dict.fromkeys([*self._nodes, *self._seeds]):
            try:
                ranges = await self._node_at(address).wire.call("CLUSTER", "SLOTS")
            except BackendError as error:
                failure = error
                continue
            for first, last, primary, *_ in ranges:
                # An empty host means: the one that was asked.
                host = primary[0].decode() if primary[0] else address[0]
                self._slots.update(dict.fromkeys(range(first, last + 1), (host, primary[1])))
            return
        assert failure is not None
        if not isinstance(failure, BackendUnavailable):
            raise failure
        raise BackendUnavailable(
            f"no node of the cluster can be asked: {failure}", definite=True
        ) from failure

    async def nodes(self) -> Sequence[Node]:
        await self._discover()
        return [self._node_at(address) for address in sorted(set(self._slots.values()))]

    def batches(self, keys: Sequence[str], most: int) -> Sequence[Sequence[int]]:
        by_slot: dict[int, list[int]] = {}
        for index, key in enumerate(keys):
            by_slot.setdefault(slot_of(key), []).append(index)
        return [
            indices[start : start + most]
            for indices in by_slot.values()
            for start in range(0, len(indices), most)
        ]

    def shard(self, key: str) -> object:
        return self._slots.get(slot_of(key))

    # Messages: a channel per key and session, on the node that serves the key.

    def on_message(self, told: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        self._told = told
        self._lost = lost

    def channel_prefix(self, key: str) -> str:
        return companion("asyncdlock", key) + ":"

    def listening(self, claim: Claim) -> bool:
        address = self._channels.get(self._channel(claim))
        return address is not None and address == self._slots.get(slot_of(claim.key))

    async def listen(self, claim: Claim) -> None:
        channel = self._channel(claim)
        self._unwanted.discard(channel)
        task = self._subscribing.get(channel)
        if task is None:
            # A task of its own: a caller that gives up leaves no subscription that nobody knows of.
            work = self._subscribe(channel, slot_of(claim.key))
            task = asyncio.get_running_loop().create_task(work, name=f"subscribe {channel}")
            self._subscribing[channel] = task
            task.add_done_callback(partial(self._subscribed, channel))
        await asyncio.shield(task)

    async def _subscribe(self, channel: str, slot: int) -> None:
        search: _Search | None = None
        while True:
            try:
                node = await self._node_of(slot)
                address = self._slots[slot]  # now: another task may drop the slot while we wait
                await node.subscribe("SSUBSCRIBE", channel)
            except BackendError as error:
                search = search or _Search(self._slots, slot)
                await search.after(error)
            else:
                self._channels[channel] = address
                return

    def _subscribed(self, channel: str, task: "asyncio.Task[None]") -> None:
        del self._subscribing[channel]
        if not task.cancelled():
            task.exception()  # retrieved: whoever waits for it has heard of it
        if channel in self._unwanted:
            self._unwanted.discard(channel)
            self._unsubscribe(channel)

    def stop_listening(self, claim: Claim) -> None:
        if not self._channels and not self._subscribing:
            return
        channel = self._channel(claim)
        if channel in self._subscribing:
            self._unwanted.add(channel)
        else:
            self._unsubscribe(channel)

    def _unsubscribe(self, channel: str) -> None:
        address = self._channels.pop(channel, None)
        if address is not None:
            self._node_at(address).wire.unsubscribe("SUNSUBSCRIBE", channel)

    def _channel(self, claim: Claim) -> str:
        return self.channel_prefix(claim.key) + claim.session

    def _pushed(self, message: list[Any]) -> None:
        if message[0] == b"smessage" and self._told is not None:
            self._told(message[2])
        elif message[0] == b"sunsubscribe" and self._channels.pop(message[1].decode(), None) and self._lost:
            # The slot went to another node, and our subscription with it.
            self._lost()

    def _node_lost(self, address: Address) -> None:
        gone = [channel for channel, at in self._channels.items() if at == address]
        for channel in gone:
            del self._channels[channel]
        if gone and self._lost is not None:
            self._lost()

    async def aclose(self) -> None:
        under_way = [*self._subscribing.values()]
        if self._discovery is not None:
            under_way.append(self._discovery)
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way)
        for node in self._nodes.values():
            await node.aclose()
