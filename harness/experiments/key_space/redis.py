"""Redis: locks that expire by themselves, late; fence counters that stay; a live lock meanwhile."""

import asyncio
import json
import subprocess
import sys

from harness import servers
from harness.experiments.key_space.figures import MIB, KeySpace, LazyFigures, RedisFigures
from harness.lab import Lab
from harness.lab.outcome import Case, Fact, compare
from harness.lab.scale.expiry import Watch, sample, watching
from harness.lab.scale.fill import Filled, Keys, fill
from harness.lab.scale.pipe import open_pipe
from harness.report.charts import Series, lines
from harness.servers import ServerError

HALF = 0.5
_CALM_SAMPLES = 4


async def active(lab: Lab, keys: int, ttl: float, figures: KeySpace) -> list[Case]:
    """Fill, wait until the locks are past their TTL and gone, and look at what is left."""
    node = await lab.enter(servers.redis())
    async with watching(node.url, every=0.1 if lab.quick else 0.5) as watch:
        while len(watch.samples) < _CALM_SAMPLES:  # noqa: ASYNC110 - a live lock before anything happens
            await asyncio.sleep(0.05)
        calm_until = watch.samples[-1].at
        empty = watch.samples[-1].used_memory
        lab.say(f"filling {keys:,} locks")
        filled = await _fill(node.url, keys, seed=lab.seed, ttl=ttl)
        full_at = filled.finished - watch.began
        await _until_gone(lab, watch, limit=ttl + 90.0)
    figures.redis = found = _redis_figures(watch, filled, empty, calm_until, full_at, ttl)
    _redis_pictures(lab, watch, keys)
    gone, left = found.all_gone_s, found.keys_left
    filling: dict[str, Fact] = {
        "keys": f"{keys:,}",
        "per second": filled.per_s,
        "of the limit": f"{filled.share_of_limit:.0%}",
        "bytes each": found.bytes_per_lock_and_fence,
    }
    counters: dict[str, Fact] = {"keys left": f"{left:,}", "MiB left": found.bytes_left / MIB}
    return [
        compare(
            "fill",
            filled.share_of_limit >= HALF and filled.new == keys,
            prediction="half the raw limit or more",
            **filling,
        ),
        compare(
            "active expiry",
            gone is not None,
            prediction="late, but all by itself",
            **{"last one late": None if gone is None else f"{found.last_expired_late_s:.1f} s"},
        ),
        compare(
            "fence counters",
            left == keys and found.bytes_left > 0,
            prediction="stay for ever",
            **counters,
        ),
        compare(
            "live lock",
            not watch.live_failures,
            prediction="stays usable",
            **{
                "p99 before": _ms(found.live_ms["before"].p99),
                "p99 filling": _ms(found.live_ms["filling"].p99),
                "p99 expiring": _ms(found.live_ms["expiring"].p99),
            },
        ),
    ]


async def _fill(url: str, keys: int, *, seed: int, ttl: float) -> Filled:
    """By the command, in a process of its own: in this one it would hold up the live lock.

    :raises ServerError: it ended badly.
    """
    words = ["gen", "--url", url, "--keys", str(keys), "--seed", str(seed), "--ttl", f"{ttl:g}s", "--json"]
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "harness", *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        out, complaints = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        raise ServerError(f"gen ended with code {child.returncode}: {complaints.decode().strip()}")
    figures = json.loads(out)
    return Filled(**{name: figures[name] for name in Filled.__dataclass_fields__})


async def _until_gone(lab: Lab, watch: Watch, limit: float) -> None:
    waited = 0.0
    while waited < limit and watch.samples[-1].with_ttl > 1:  # the live lock itself may be there
        await asyncio.sleep(0.5)
        waited += 0.5
        if waited % 10 == 0:
            lab.say(f"{watch.samples[-1].with_ttl:,} locks are still there")


def _redis_figures(
    watch: Watch, filled: Filled, empty: int, calm_until: float, full_at: float, ttl: float
) -> RedisFigures:
    peak = max(watch.samples, key=lambda one: one.used_memory)
    last = watch.samples[-1]
    gone = watch.first(2)
    first_due = full_at - filled.seconds + ttl
    # Of the keys that are past their TTL, those still there: in used_memory, and of no use.
    overdue = [
        (one.at, max(_due(one.at, full_at, filled, ttl) - one.expired, 0))
        for one in watch.samples
        if one.at >= first_due
    ]
    return RedisFigures(
        fill_per_s=round(filled.per_s),
        raw_limit_per_s=round(filled.raw_limit_per_s),
        share_of_limit=round(filled.share_of_limit, 3),
        fill_s=round(filled.seconds, 3),
        used_memory_full=peak.used_memory,
        resident_full=peak.resident,
        bytes_per_lock_and_fence=round((peak.used_memory - empty) / filled.keys, 1),
        all_gone_s=gone,
        last_expired_late_s=None if gone is None else round(max(gone - full_at - ttl, 0.0), 2),
        overdue_max=max((count for _, count in overdue), default=0),
        keys_left=last.keys - last.with_ttl - 1,  # but for the live lock's own
        bytes_left=last.used_memory - empty,
        resident_left=last.resident,
        live_ms={
            "before": watch.live_ms(0, calm_until),
            "filling": watch.live_ms(calm_until, full_at),
            "expiring": watch.live_ms(first_due),
        },
        live_failures=watch.live_failures,
        series=[
            [round(one.at, 2), one.used_memory, one.keys, one.expired]
            for one in watch.samples[:: max(1, len(watch.samples) // 200)]
        ],
    )


def _due(at: float, full_at: float, filled: Filled, ttl: float) -> int:
    """How many keys are past their TTL: they were set at an even pace."""
    share = (at - ttl - (full_at - filled.seconds)) / filled.seconds
    return round(min(max(share, 0.0), 1.0) * filled.keys)


def _redis_pictures(lab: Lab, watch: Watch, keys: int) -> None:
    memory = [(one.at, one.used_memory / MIB) for one in watch.samples]
    lab.chart(
        "memory",
        lines(
            f"{keys:,} locks come and go; their fence counters stay",
            [
                Series("used_memory", memory),
                Series("resident", [(one.at, one.resident / MIB) for one in watch.samples], dashed=True),
            ],
            x_label="seconds",
            y_label="MiB",
        ),
    )
    live: list[tuple[float, float]] = []
    step = max(1.0, watch.samples[-1].at / 100) if not lab.quick else 0.25
    at = 0.0
    while at < watch.samples[-1].at:
        window = watch.live_ms(at, at + step)
        if window.count:
            live.append((at + step / 2, window.p99))
        at += step
    lab.chart(
        "live-lock",
        lines(
            "A live lock meanwhile",
            [Series("p99 of acquire and release", live)],
            x_label="seconds",
            y_label="ms",
        ),
    )


async def lazy(lab: Lab, keys: int, figures: KeySpace) -> list[Case]:
    """Active expiry off: an expired key is invisible, and yet there, until somebody asks for it."""
    node = await lab.enter(servers.redis(config={"enable-debug-command": "yes"}))
    async with open_pipe(node.url) as pipe:
        await pipe.ask("DEBUG", "SET-ACTIVE-EXPIRE", "0")
        filled = await fill(node.url, keys, seed=lab.seed, ttl=0.5, fences=False)
        await asyncio.sleep(1.0)
        before = await sample(pipe)
        touched = 0
        names = Keys(lab.seed)
        for number in range(0, keys, 1000):
            words = [names.key(place) for place in range(number, min(number + 1000, keys))]
            touched += int(await pipe.ask("EXISTS", *words))
        after = await sample(pipe)
    figures.lazy = LazyFigures(
        keys=keys,
        still_there=before.keys,
        answered_to_exists=touched,
        left_after_touch=after.keys,
        used_memory_before_touch=before.used_memory,
        used_memory_after_touch=after.used_memory,
    )
    return [
        compare(
            "lazy expiry",
            before.keys == filled.keys and touched == 0 and after.keys == 0,
            prediction="kept until touched",
            **{
                "expired and there": f"{before.keys:,}",
                "left when touched": f"{after.keys:,}",
                "MiB freed by touching": f"{(before.used_memory - after.used_memory) / MIB:.2f}",
            },
        )
    ]


def _ms(value: float) -> str:
    return f"{value:.2f} ms"
