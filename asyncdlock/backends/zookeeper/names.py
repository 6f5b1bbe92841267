"""Names in ZooKeeper: which path a key has, which name a claim has, who is ahead of whom.

Pure functions. The recipe and the names are those of kazoo's `Lock` and `WriteLock`,
`/locks/{key}/{uuid}__lock__{sequence}`, and of its `ReadLock`, with `__rlock__`. Who wants one of N permits
is a reader that says so: `{uuid}.N__rlock__{sequence}`.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from urllib.parse import quote, unquote
from uuid import UUID

ROOT = "/locks"
_ALONE = "__lock__"
_BESIDE_OTHERS = "__rlock__"

# Everybody who stands in the queue of an exclusive lock: kazoo's Lock and WriteLock, kazoo's ReadLock,
# and the name that go-zookeeper and Curator use. kazoo's own WriteLock waits behind readers in the same way.
_CONTENDER = re.compile(r"(?:__lock__|__rlock__|-lock-)(-?\d{10})$")

# What a path may not contain: ZooKeeper's PathUtils.validatePath, in UTF-16 units, so that everything
# beyond the Basic Multilingual Plane is out as well. "%" is the escape character itself.
_FORBIDDEN = re.compile("[%\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")
# A "/" that would begin or end an empty component.
_EMPTY_COMPONENT = re.compile(r"^/|/$|(?<=/)/")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HEX = re.compile(r"[0-9a-f]{32}")
_NAMED = re.compile(r"(?P<name>.+?)(?:\.(?P<permits>\d+)(?=__rlock__))?(?P<kind>__r?lock__)-?\d{10}$")

# The counter in the parent is a signed 32-bit number that sticks at its end: beyond it two nodes would get
# the same number, and both would believe to be first. Stop well before.
LAST_SEQUENCE = 2**31 - 2**20


def parent_of(key: str) -> str:
    """The path below which the contenders for `key` queue.

    A plain key stands in it as it is, and "/" makes a path. Only what ZooKeeper would refuse or confuse is
    percent-encoded: `path_key` gives the key back, so two keys never share a path.
    """
    path = _EMPTY_COMPONENT.sub("%2F", _FORBIDDEN.sub(_encoded, key))
    return f"{ROOT}/" + "/".join(map(_safe_component, path.split("/")))


def path_key(path: str) -> str:
    """The key whose contenders queue below `path`."""
    return unquote(path.removeprefix(f"{ROOT}/"))


def _safe_component(component: str) -> str:
    if component in (".", ".."):
        return component.replace(".", "%2E")
    if _CONTENDER.search(component):  # would look like somebody in the queue of the key above
        return f"{component[:-11]}%{ord(component[-11]):02X}{component[-10:]}"
    return component


def _encoded(match: re.Match[str]) -> str:
    return quote(match[0], safe="")


def prefix_of(owner: str, permits: int | None = None) -> str:
    """The name of a claim's node up to its sequence: found again by it when the reply was lost.

    `permits`: how many may hold the key at once, 0 for any number; `None` for one who wants it alone.
    """
    name = owner.replace("-", "") if _UUID.fullmatch(owner) else quote(owner, safe="")
    if permits is None:
        return name + _ALONE
    return f"{name}.{permits}{_BESIDE_OTHERS}" if permits else name + _BESIDE_OTHERS


def sequence_of(node: str) -> int:
    """The place that the server gave to a node which `prefix_of` named."""
    return int(node.rpartition("__")[2])


def owner_of(node: str) -> str | None:
    """The owner of a claim whose node `prefix_of` named; kazoo's are named in the same way."""
    match = _NAMED.match(node)
    if match is None:
        return None
    name = match["name"]
    return str(UUID(name)) if _HEX.fullmatch(name) else unquote(name)


def beside_of(node: str) -> int | None:
    """How many may hold the key at once by this node, 0 for any number; `None` for one who wants it alone."""
    match = _NAMED.match(node)
    if match is None or match["kind"] == _ALONE:
        return None
    return int(match["permits"] or 0)


def is_contender(node: str) -> bool:
    """Whether a node of this name stands in the queue of the key above it."""
    return _CONTENDER.search(node) is not None


class NotQueued(Exception):
    """A node does not stand in the queue in which it was looked for."""


class Contenders:
    """Those who stood in one queue at one moment, in order."""

    __slots__ = ("_order",)

    def __init__(self, children: Iterable[str]) -> None:
        search = _CONTENDER.search
        self._order = sorted((int(match[1]), name) for name in children if (match := search(name)))

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[str]:
        return (name for _, name in self._order)

    def named(self, prefix: str) -> list[str]:
        """The nodes that carry a claim's prefix, oldest first."""
        return [name for _, name in self._order if name.startswith(prefix)]

    def ahead_of(self, node: str, permits: int | None = None) -> list[str]:
        """The contenders before `node` one of whom must go before it may hold the lock; none: it may.

        `permits` as in `prefix_of`. Who wants the lock alone waits for the one just before. Others wait for
        the last before them who wants it alone; then for any of the last N, while so many permits are taken.

        :raises NotQueued: `node` is not among them.
        """
        place = sequence_of(node), node
        index = bisect_left(self._order, place)
        if index == len(self._order) or self._order[index] != place:
            raise NotQueued(node)
        if permits is None:
            return [name for _, name in self._order[max(0, index - 1) : index]]
        before = [name for _, name in reversed(self._order[:index])]
        alone = next((name for name in before if _BESIDE_OTHERS not in name), None)
        if alone is not None:
            return [alone]
        return before[:permits] if len(before) >= permits else []
