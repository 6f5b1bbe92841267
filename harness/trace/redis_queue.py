"""The steps of the fair queue, as a relation: which commands a script may call in which state, and must.

Written from the protocol (tests/models/redis_queue.pml) and not from the scripts: what they called is judged.

| in a script | a command            | is allowed                                                       |
|-------------|----------------------|------------------------------------------------------------------|
| any         | ZPOPMIN of the queue | when the lock is free, or is being released by its owner         |
| any         | SET of the lock      | with new fences: to whom was taken from the queue; or to who     |
|             |                      | asks, if the lock is free and nobody waits, or is its own        |
| any         | PUBLISH              | of the grant that was just made, with its last fence             |
| acquire     | ZADD                 | behind all others, while somebody else has the lock              |
| release     | DEL of the lock      | by its owner; or of a grant of which nobody could be told        |
| renew       | PEXPIRE of the lock  | by its owner                                                     |

At the end of a script that finds the lock free, or frees it, somebody has it or nobody waits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from asyncdlock.backends.redis.fence_counter import fence_counter
from asyncdlock.backends.redis.keys import companion, fence_key, key_of, lock_name
from asyncdlock.backends.redis.queue_server import QueueScripts
from harness.trace.monitor import MARK, Call, LockSnapshot, MonitorLog

_UNSURE = 0.1
"""Seconds about the end of a lease in which the server may have ended it or not: a script's clock is that of
its beginning, and that of the log is read later, on a machine that may be busy."""
_READS = ("GET", "PTTL", "EXISTS", "ZCARD", "ZSCORE", "ZRANGE", "PEXPIRE")
_SESSION = 23


def names_of(key: str) -> tuple[str, str, str]:
    """The lock, its fence counter and its queue, as `monitor.recorded` wants them."""
    return lock_name(key), fence_key(key), companion("queue", key)


@dataclass(frozen=True, slots=True)
class Block:
    """A grant: the fences after `before` up to `last`, to `owner`."""

    lock: str
    owner: str
    before: int
    last: int
    at: float

    @property
    def session(self) -> str:
        """The common start of the owners of one client."""
        return self.owner[:_SESSION]


@dataclass(slots=True)
class _Lock:
    """One lock as the replay believes it to be."""

    name: str
    holder: str = ""
    ends: float = 0.0
    counter: int = 0
    queue: list[tuple[float, str]] = field(default_factory=list)

    def holders(self, at: float) -> set[str]:
        """Who may have it: near the end of a lease either is right."""
        if not self.holder or at > self.ends + _UNSURE:
            return {""}
        return {self.holder} if at < self.ends - _UNSURE else {self.holder, ""}


@dataclass(slots=True)
class Replay:
    """Takes a log step by step. `complaints`: what the model does not allow."""

    complaints: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    steps: int = 0
    _locks: dict[str, _Lock] = field(default_factory=dict)
    _counters: dict[str, _Lock] = field(default_factory=dict)
    _queues: dict[str, _Lock] = field(default_factory=dict)

    def run(self, log: MonitorLog) -> "Replay":
        verbs = _verbs()
        for number, call in enumerate(log.calls):
            if number in log.gaps:
                self._forget()
            if number + 1 in log.gaps:
                continue  # what its script called may have been cut off
            words = call.words
            command = words[0].upper()
            if words[-1].startswith(MARK):
                for snapshot in log.snapshots.get(words[-1], ()):
                    if snapshot.lock == words[3]:
                        self._believe(snapshot, call.at)
            elif command in ("EVAL", "EVALSHA"):
                verb = verbs.get(words[1], "other")
                self._script(verb, words[3 : 3 + int(words[2])], words[3 + int(words[2]) :], call)
            else:
                self._administrator(command, words)
        return self

    def _forget(self) -> None:
        """Nothing is known until a snapshot tells: clients may be heard again before we have looked."""
        for known in (self._locks, self._counters, self._queues):
            known.clear()

    def _believe(self, snapshot: LockSnapshot, at: float) -> None:
        lock, counter, queue = names_of(key_of(snapshot.lock))
        ends = float("inf") if snapshot.pttl == -1 else at + snapshot.pttl / 1000
        waiting = [(score, member) for member, score in snapshot.queue]
        one = _Lock(lock, snapshot.holder, ends, snapshot.counter, waiting)
        self._locks[lock] = self._counters[counter] = self._queues[queue] = one

    def _administrator(self, command: str, words: Sequence[str]) -> None:
        """Whatever is done besides: it is believed."""
        if command in ("FLUSHALL", "FLUSHDB"):
            for lock in self._locks.values():
                lock.holder, lock.counter, lock.queue = "", 0, []
        elif command in ("DEL", "UNLINK"):
            for name in words[1:]:
                self._deleted(name)

    def _deleted(self, name: str) -> None:
        if (lock := self._locks.get(name)) is not None:
            lock.holder = ""
        if (lock := self._counters.get(name)) is not None:
            lock.counter = 0
        if (lock := self._queues.get(name)) is not None:
            lock.queue = []

    def _script(self, verb: str, keys: Sequence[str], argv: Sequence[str], call: Call) -> None:
        if verb == "renew":
            self._renewal(keys, argv, call)
            return
        if not call.called:
            return  # NOSCRIPT: it is sent again with its text
        lock = next((self._locks[key] for key in keys if key in self._locks), None)
        if verb in ("acquire", "watch", "release", "force") and lock is not None:
            self.steps += 1
            _Step(self, lock, verb, argv, call).judge()
            return
        for words in call.called:  # raise_fence.lua, and what is no business of the queue
            if words[0].upper() == "SET" and words[1] in self._counters:
                self._counters[words[1]].counter = int(words[2])
            elif words[0].upper() == "DEL":
                for name in words[1:]:
                    self._deleted(name)

    def _renewal(self, keys: Sequence[str], argv: Sequence[str], call: Call) -> None:
        owners = dict(zip(keys, argv, strict=False))
        for words in call.called:
            if words[0].upper() == "PEXPIRE" and (lock := self._locks.get(words[1])) is not None:
                self.steps += 1
                owner = owners[words[1]]
                if owner not in lock.holders(call.at):
                    self.complain(
                        call, "renew", lock, f"the lease of {lock.holder!r} is extended for {owner!r}"
                    )
                lock.ends = call.at + int(words[2]) / 1000

    def complain(self, call: Call, verb: str, lock: _Lock, what: str) -> None:
        self.complaints.append(f"step {self.steps} at {call.at:.6f}, {verb} of {lock.name!r}: {what}")


def _verbs() -> Mapping[str, str]:
    """By the name and by the text of each script."""
    scripts = QueueScripts.of(fence_counter())
    named = {
        "acquire": scripts.acquire,
        "watch": scripts.watch,
        "release": scripts.release,
        "force": scripts.force_release,
        "renew": fence_counter().renew,
    }
    return {name: verb for verb, script in named.items() for name in (script._name, script.source)}


class _Step:
    """One script on one lock."""

    def __init__(self, replay: Replay, lock: _Lock, verb: str, argv: Sequence[str], call: Call) -> None:
        self.replay, self.lock, self.verb, self.argv, self.call = replay, lock, verb, argv, call
        self.owner = argv[0]
        found = lock.holders(call.at)
        self.was_owned = self.owner in found
        self.was_free = "" in found
        self.certain = len(found) == 1
        current = verb != "release" or len(argv) < 7 or argv[6] == str(lock.counter)
        self.releases = (verb == "release" and self.was_owned and current) or verb == "force"
        self.popped = ""
        self.reserved: tuple[int, int] | None = None
        self.granted: Block | None = None
        self.told_in_vain = False

    def judge(self) -> None:
        """Take what it called, one after the other; then see that nothing was left undone."""
        names = {name for name, one in self.replay._counters.items() if one is self.lock}
        queues = {name for name, one in self.replay._queues.items() if one is self.lock}
        for words in self.call.called:
            command, name = words[0].upper(), words[1] if len(words) > 1 else ""
            if name in names and command in ("INCRBY", "SET"):
                self._count(command, int(words[2]))
            elif name == self.lock.name and command == "SET":
                self._grant(words[2], int(words[4]))
            elif name == self.lock.name and command == "DEL":
                self._free()
            elif name in queues and command == "ZPOPMIN":
                self._pop()
            elif name in queues and command == "ZADD":
                self._join(float(words[3]), words[4])
            elif name in queues and command == "ZREM":
                self._leave(words[2])
            elif command in ("PUBLISH", "SPUBLISH"):
                self._tell(words[2])
            elif name in {self.lock.name, *names, *queues} and command not in _READS:
                self._complain(f"{command} of {name!r}")
        self._end()

    def _complain(self, what: str) -> None:
        self.replay.complain(self.call, self.verb, self.lock, what)

    def _count(self, command: str, number: int) -> None:
        before = self.lock.counter
        self.lock.counter = number if command == "SET" else before + number
        self.reserved = before, self.lock.counter
        if self.lock.counter <= before:
            self._complain(f"the fence counter goes from {before} to {self.lock.counter}")

    def _pop(self) -> None:
        if not (self.was_free or self.releases or self.told_in_vain):
            self._complain(f"somebody is taken from the queue, though {self.lock.holder!r} has the lock")
        if self.lock.queue:
            self.lock.queue.sort()
            self.popped = self.lock.queue.pop(0)[1].partition(" ")[0]
        else:
            self.popped = ""

    def _grant(self, to: str, ttl: int) -> None:
        if to != self.popped and not (to == self.owner and self.verb == "acquire"):
            self._complain(f"the lock goes to {to!r}, who is not next")
        elif to != self.popped and self.lock.queue and not self.was_owned:
            self._complain(f"the lock goes to {to!r}, though others wait")
        if not (self.was_free or self.was_owned or self.releases or self.told_in_vain):
            self._complain(f"the lock goes to {to!r}, though {self.lock.holder!r} has it")
        if self.reserved is None:
            self._complain(f"the lock goes to {to!r} without a new fence")
            self.reserved = self.lock.counter, self.lock.counter
        self.granted = Block(self.lock.name, to, *self.reserved, self.call.at)
        self.replay.blocks.append(self.granted)
        self.reserved = None
        self.lock.holder, self.lock.ends = to, self.call.at + ttl / 1000
        self.popped = ""
        self.told_in_vain = False

    def _tell(self, message: str) -> None:
        owner, fence, _, _ = message.split(" ", 3)
        if self.granted is None or (owner, int(fence)) != (self.granted.owner, self.granted.last):
            self._complain(f"{owner!r} is told of fence {fence}, which is not its grant")
        self.told_in_vain = True  # unless the script stops here

    def _free(self) -> None:
        if not (self.releases or self.told_in_vain):
            self._complain(f"the lock is taken from {self.lock.holder!r}")
        if self.told_in_vain and self.granted is not None:
            self.replay.blocks.pop()
            self.granted = None
        self.lock.holder = ""

    def _join(self, place: float, member: str) -> None:
        if member.partition(" ")[0] != self.owner:
            self._complain(f"{member!r} joins the queue in the place of {self.owner!r}")
        if any(one == member for _, one in self.lock.queue):
            return  # NX: it keeps its place
        if self.lock.queue and place <= max(self.lock.queue)[0]:
            self._complain(f"{member!r} joins the queue before others who wait")
        if self.lock.holders(self.call.at) == {""}:
            self._complain(f"{member!r} has to wait for a lock that nobody has")
        self.lock.queue.append((place, member))

    def _leave(self, member: str) -> None:
        if self.verb != "release" or member.partition(" ")[0] != self.owner:
            self._complain(f"{member!r} is taken from the queue by {self.owner!r}")
        self.lock.queue = [one for one in self.lock.queue if one[1] != member]

    def _end(self) -> None:
        if not self.certain:
            # The server ended the lease, or did not: what it did tells which.
            if self.granted is None and self.was_free and self.verb == "release":
                self.lock.ends = (
                    self.call.at - 2 * _UNSURE if self.lock.holder == self.owner else self.lock.ends
                )
            return
        kept = self.lock.holder == self.owner and self.granted is None
        if self.releases and kept:
            self._complain(f"the lock is still that of {self.owner!r}, who released it")
        if self.verb in ("acquire", "watch") and self.was_free and self.granted is None and self.lock.queue:
            self._complain("the lock is free, somebody waits, and nobody has got it")
