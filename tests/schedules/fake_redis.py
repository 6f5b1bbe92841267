"""Redis in memory: the commands that our scripts call, and the scripts themselves, run by a Lua interpreter.

Its clock is `time.time`, hence the virtual one inside `virtual_time`.
"""

import time
from collections.abc import Callable
from hashlib import sha1
from typing import Any

import hiredis
from lupa import lua51

Words = list[bytes]


class CommandError(Exception):
    """An error reply."""


class FakeRedis:
    """One server. What it stores goes with `flush`; its scripts with `forget_scripts`."""

    def __init__(self) -> None:
        self.listeners: dict[bytes, set[Callable[[bytes], None]]] = {}
        self._values: dict[bytes, Any] = {}
        self._ends: dict[bytes, float] = {}
        self._lua = lua51.LuaRuntime(encoding="latin-1", unpack_returned_tuples=False)
        self._lua.execute("redis = {}")
        calls = self._lua.globals().redis
        calls.call_ = self._call
        self._lua.execute(
            "function redis.pcall(...) local r = redis.call_(...); return r end\n"
            "function redis.call(...) local r = redis.call_(...)\n"
            "  if type(r) == 'table' and r.err then error(r, 0) end; return r end"
        )
        self._run = self._lua.eval(
            "function(f) local ok, r = pcall(f); if ok then return r end\n"
            "  if type(r) == 'table' then return r end; return {err = 'ERR ' .. tostring(r)} end"
        )
        self._compiled: dict[str, Any] = {}
        self._known: set[str] = set()

    def forget_scripts(self) -> None:
        self._known.clear()

    def left_behind(self) -> list[bytes]:
        """All names but those of counters, and what clients tell of themselves."""
        self._expire()
        return [name for name in self._values if not name.startswith((b"fence:", b"client:"))]

    def execute(self, words: Words) -> bytes:
        """The reply to a command, as bytes. Not SUBSCRIBE, which is the connection's."""
        try:
            return encoded(self._execute([word.decode("latin-1") for word in words]))
        except CommandError as error:
            return f"-{error}\r\n".encode()

    def _execute(self, words: list[str]) -> Any:
        verb = words[0].upper()
        if verb not in ("EVAL", "EVALSHA"):
            return self._command(words)
        if verb == "EVAL":
            name = sha1(words[1].encode("latin-1"), usedforsecurity=False).hexdigest()
            if name not in self._compiled:
                self._compiled[name] = self._lua.compile(words[1])
            self._known.add(name)
        elif (name := words[1]) not in self._known:
            raise CommandError("NOSCRIPT No matching script.")
        count = int(words[2])
        globals_ = self._lua.globals()
        globals_.KEYS = self._lua.table_from(words[3 : 3 + count])
        globals_.ARGV = self._lua.table_from(words[3 + count :])
        return self._from_lua(self._run(self._compiled[name]))

    def _from_lua(self, value: Any) -> Any:
        if value is None or value is False:
            return None
        if value is True:
            return 1
        if isinstance(value, float):
            return int(value)
        if lua51.lua_type(value) != "table":
            return value
        if value.err is not None:
            raise CommandError(value.err)
        found, number = [], 1
        while (one := value[number]) is not None:
            found.append(self._from_lua(one))
            number += 1
        return found

    def _call(self, *arguments: Any) -> Any:
        words = [_text(argument) for argument in arguments]
        try:
            found = self._command(words)
        except CommandError as error:
            return self._lua.table_from({"err": str(error)})
        if isinstance(found, list):
            return self._lua.table_from([False if one is None else one for one in found])
        return False if found is None else found

    # Commands

    def _expire(self) -> None:
        now = time.time() * 1000
        for name in [name for name, end in self._ends.items() if end <= now]:
            self._delete(name)

    def _delete(self, name: bytes) -> int:
        self._ends.pop(name, None)
        return int(self._values.pop(name, None) is not None)

    def _command(self, words: list[str]) -> Any:
        self._expire()
        verb = words[0].upper()
        run = getattr(self, f"_{verb.lower()}", None)
        if run is None:
            raise CommandError(f"ERR unknown command '{verb}'")
        return run(*words[1:])

    def _of(self, name: str, kind: type) -> Any:
        """What `name` holds; an empty one of its kind when there is nothing. Stored by `_keep`."""
        value = self._values.get(name.encode("latin-1"))
        if value is None:
            return kind()
        if not isinstance(value, kind):
            raise CommandError("WRONGTYPE Operation against a key holding the wrong kind of value")
        return value

    def _keep(self, name: str, value: Any) -> None:
        key = name.encode("latin-1")
        if value:
            self._values[key] = value
        else:
            self._delete(key)

    def _get(self, name: str) -> str | None:
        return self._of(name, str) or None

    def _set(self, name: str, value: str, *more: str) -> str:
        self._ends.pop(name.encode("latin-1"), None)
        self._values[name.encode("latin-1")] = value
        if more:
            self._ends[name.encode("latin-1")] = time.time() * 1000 + int(more[1])
        return "OK"

    def _del(self, *names: str) -> int:
        return sum(self._delete(name.encode("latin-1")) for name in names)

    def _exists(self, *names: str) -> int:
        return sum(name.encode("latin-1") in self._values for name in names)

    def _incr(self, name: str) -> int:
        return self._incrby(name, "1")

    def _incrby(self, name: str, by: str) -> int:
        value = int(self._of(name, str) or 0) + int(by)
        self._values[name.encode("latin-1")] = str(value)
        return value

    def _pttl(self, name: str) -> int:
        key = name.encode("latin-1")
        if key not in self._values:
            return -2
        end = self._ends.get(key)
        return -1 if end is None else max(0, round(end - time.time() * 1000))

    def _pexpire(self, name: str, length: str) -> int:
        return self._pexpireat(name, str(time.time() * 1000 + float(length)))

    def _pexpireat(self, name: str, end: str) -> int:
        key = name.encode("latin-1")
        if key not in self._values:
            return 0
        self._ends[key] = float(end)
        return 1

    def _time(self) -> list[str]:
        seconds, rest = divmod(round(time.time() * 1_000_000), 1_000_000)
        return [str(seconds), str(rest)]

    def _zadd(self, name: str, *words: str) -> int:
        members = self._of(name, dict)
        only_new = words[0] == "NX"
        score, member = words[only_new:]
        new = member not in members
        if new or not only_new:
            members[member] = float(score)
        self._keep(name, members)
        return int(new)

    def _ordered(self, name: str) -> list[tuple[str, float]]:
        members: dict[str, float] = self._of(name, dict)
        return sorted(members.items(), key=lambda one: (one[1], one[0]))

    def _zcard(self, name: str) -> int:
        return len(self._of(name, dict))

    def _zscore(self, name: str, member: str) -> str | None:
        score = self._of(name, dict).get(member)
        return None if score is None else f"{score:.17g}"

    def _zrem(self, name: str, member: str) -> int:
        members = self._of(name, dict)
        gone = members.pop(member, None) is not None
        self._keep(name, members)
        return int(gone)

    def _zpopmin(self, name: str) -> list[str]:
        for member, score in self._ordered(name)[:1]:
            self._zrem(name, member)
            return [member, f"{score:.17g}"]
        return []

    def _zrange(self, name: str, first: str, last: str, *more: str) -> list[str]:
        return _slice(self._ordered(name), first, last, more)

    def _zrevrange(self, name: str, first: str, last: str, *more: str) -> list[str]:
        return _slice(self._ordered(name)[::-1], first, last, more)

    def _zremrangebyscore(self, name: str, low: str, high: str) -> int:
        gone = [member for member, score in self._ordered(name) if float(low) <= score <= float(high)]
        for member in gone:
            self._zrem(name, member)
        return len(gone)

    def _hset(self, name: str, *words: str) -> int:
        fields = self._of(name, dict)
        before = len(fields)
        fields.update(zip(words[::2], words[1::2], strict=True))
        self._keep(name, fields)
        return len(fields) - before

    def _hget(self, name: str, field: str) -> str | None:
        found: str | None = self._of(name, dict).get(field)
        return found

    def _hdel(self, name: str, *names: str) -> int:
        fields = self._of(name, dict)
        gone = sum(fields.pop(one, None) is not None for one in names)
        self._keep(name, fields)
        return gone

    def _hgetall(self, name: str) -> list[str]:
        return [word for pair in self._of(name, dict).items() for word in pair]

    def _hincrby(self, name: str, field: str, by: str) -> int:
        fields = self._of(name, dict)
        value = int(fields.get(field, 0)) + int(by)
        fields[field] = str(value)
        self._keep(name, fields)
        return value

    def _publish(self, channel: str, message: str) -> int:
        listeners = list(self.listeners.get(channel.encode("latin-1"), ()))
        for told in listeners:
            told(message.encode("latin-1"))
        return len(listeners)

    def _pubsub(self, verb: str, channel: str) -> list[Any]:
        return [channel, len(self.listeners.get(channel.encode("latin-1"), ()))]


def _slice(members: list[tuple[str, float]], first: str, last: str, more: tuple[str, ...]) -> list[str]:
    end = int(last)
    chosen = members[int(first) : None if end == -1 else end + 1]
    if not more:
        return [member for member, _ in chosen]
    return [word for member, score in chosen for word in (member, f"{score:.17g}")]


def _text(argument: Any) -> str:
    return argument if isinstance(argument, str) else f"{argument:.17g}"


def encoded(value: Any) -> bytes:
    """A reply in RESP3."""
    if value is None:
        return b"_\r\n"
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, str):
        word = value.encode("latin-1")
        return b"$%d\r\n%b\r\n" % (len(word), word)
    return b"*%d\r\n%b" % (len(value), b"".join(encoded(one) for one in value))


def pushed(*words: bytes | int) -> bytes:
    """A message that is no reply."""
    told = [b":%d\r\n" % one if isinstance(one, int) else b"$%d\r\n%b\r\n" % (len(one), one) for one in words]
    return b">%d\r\n%b" % (len(words), b"".join(told))


def requests_in(reader: hiredis.Reader, data: bytes) -> list[Words]:
    """The commands that are complete with `data`."""
    reader.feed(data)
    found = []
    while (request := reader.gets()) is not False:
        found.append(request)
    return found
