"""What experiment 7 measured; `to_json` gives the form of the published result."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.lab.scale.etcd_growth import Size
from harness.report.model import Figures

MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisFigures:
    """Locks that were filled in and left to expire. Bytes and seconds."""

    fill_per_s: int
    raw_limit_per_s: int
    share_of_limit: float
    fill_s: float
    used_memory_full: int
    resident_full: int
    bytes_per_lock_and_fence: float
    all_gone_s: float | None
    """Since the watch began; `None`: some were still there when it ended."""
    last_expired_late_s: float | None
    overdue_max: int
    """Keys past their TTL that were still there, at the most."""
    keys_left: int
    bytes_left: int
    resident_left: int
    live_ms: Mapping[str, Figures]
    """Percentiles of a lock that had nothing to do with it: before, filling, expiring."""
    live_failures: int
    series: Sequence[Sequence[float | int]]
    """Time, used memory, keys, keys expired so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyFigures:
    """Expired keys on a server that does not look for them by itself."""

    keys: int
    still_there: int
    answered_to_exists: int
    left_after_touch: int
    used_memory_before_touch: int
    used_memory_after_touch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdFigures:
    """Leases that expired, and the file that they left."""

    leases: int
    locks_per_s: float
    most_leases: int
    expired_after_s: float | None
    puts_per_s: float
    bytes_per_revision: float
    sizes: Mapping[str, Size]
    """Of the file, after each step."""


@dataclass(slots=True)
class KeySpace:
    """All of them; a part is `None` when its server could not be had."""

    keys: int
    ttl_s: float
    redis: RedisFigures | None = None
    lazy: LazyFigures | None = None
    etcd: EtcdFigures | None = None

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"keys": self.keys, "ttl_s": self.ttl_s}
        if self.redis is not None:
            told |= asdict(self.redis)
        if self.lazy is not None:
            told["lazy"] = asdict(self.lazy)
        if self.etcd is not None:
            told["etcd"] = asdict(self.etcd)
        return told
