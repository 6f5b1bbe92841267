"""Names of a lock's keys in Redis: no two locks share one, and all of a lock's are in one Cluster slot.

A lock is stored under its own name, its companions (fence counter, queue, sessions, holders) under
`role:stem`, what a client tells of itself under `client:{session}`, and a counter that all keys of a slot
share under `fences:{tag}`:

| key                                          | stored as      | stem             |
|----------------------------------------------|----------------|------------------|
| without `}`: almost every key                | the key        | `{key}`          |
| with a hash tag: `{tenant}:job`              | the key        | the key          |
| nothing but a hash tag: `{tenant}`           | the key        | `tagged:{tenant}`|
| any other with `}`: `a}b`, `{}`, `fence:{x}` | `escaped:{…}`  | `escaped:{…}`    |

`…` is the key with `%`, `{` and `}` as `%25`, `%7B` and `%7D`. The last row also takes the keys with `}` that
begin like a name of ours (`_OURS`). Hence no two names are equal:

- Every companion and every escaped lock contains `}` and begins with a word of ours; no other lock does both.
- The stems of the four rows begin with `{`, with none of our words, with `tagged:` and with `escaped:`. One
  of the second row that begins with `{` is not a single tag, and those of the first row are.
"""

from binascii import crc_hqx
from functools import lru_cache
from itertools import count
from urllib.parse import unquote

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

_OURS = ("fence:", "fences:", "queue:", "sessions:", "holders:", "client:", "tagged:", "escaped:")
_ESCAPES = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})


def stem(key: str) -> str:
    """What the names of a lock's companions end in."""
    close = key.find("}")
    if close < 0:
        return f"{{{key}}}"
    opening = key.find("{")
    close = key.find("}", opening)
    if opening < 0 or close <= opening + 1 or key.startswith(_OURS):
        return f"escaped:{{{key.translate(_ESCAPES)}}}"
    if opening == 0 and close == len(key) - 1:
        return f"tagged:{key}"
    return key


def lock_name(key: str) -> str:
    """Where the owner of `key` is stored."""
    if "}" not in key:
        return key
    stored = stem(key)
    return stored if stored.startswith("escaped:") else key


def key_of(name: str) -> str:
    """The key whose lock is stored under `name`."""
    if "}" in name and name.startswith("escaped:{"):
        return unquote(name[len("escaped:{") : -1])
    return name


def companion(role: str, key: str) -> str:
    """The key `role:{key}`."""
    return f"{role}:{stem(key)}"


def fence_key(key: str) -> str:
    """Where the fence counter of `key` is stored."""
    return companion("fence", key)


def shard_key(key: str) -> str:
    """Where the fence counter is stored that all keys of the slot of `key` share."""
    return f"fences:{{{_tags()[slot_of(key)]}}}"


@lru_cache(maxsize=1)
def _tags() -> list[int]:
    """For each slot of a Cluster the smallest number that lies in it. To find them takes 50 ms, once."""
    tags: dict[int, int] = {}
    for number in count():
        tags.setdefault(crc_hqx(b"%d" % number, 0) % REDIS_CLUSTER_HASH_SLOTS, number)
        if len(tags) == REDIS_CLUSTER_HASH_SLOTS:
            return [tags[slot] for slot in range(REDIS_CLUSTER_HASH_SLOTS)]
    raise AssertionError("numbers never end")


def key_of_stem(stem: str) -> str:
    """The key whose companions' names end in `stem`."""
    if stem.startswith("escaped:{"):
        return key_of(stem)
    if stem.startswith("tagged:"):
        return stem.removeprefix("tagged:")
    return stem[1:-1] if stem.startswith("{") and stem.find("}") == len(stem) - 1 else stem


def client_key(session: str) -> str:
    """Where the client of `session` tells of itself. In a cluster it is routed like a lock of this name."""
    return f"client:{{{session}}}"


def slot_of(key: str) -> int:
    """The Cluster slot of a lock and of its companions."""
    slot: int = key_slot(lock_name(key).encode())
    return slot
