"""`contend`: the main command for a program or a test of one's own, with a typed result."""

import contextlib
import pkgutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from asyncdlock import LockClient
from harness.config import RunConfig, UsageError
from harness.judge.checkers.result import Verdict
from harness.load.run import run_load
from harness.report.model import Summary
from harness.report.summary import TRUST


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """What came out of a run."""

    verdict: Verdict
    """`ok`, `violated`, or `unknown`: too little was seen, or the generator was too late to be believed."""
    findings: tuple[str, ...]
    """What was found, a sentence each, with the name of the check before it; empty when all is well."""
    figures: Summary
    """Everything that `summary.json` holds."""
    folder: Path | None
    """The run's files, if a folder for them was given."""

    @property
    def safe(self) -> bool:
        """Whether nothing broke down and every check of the history is ok, however late the generator was.

        Latencies of a late generator are worthless; what its contenders did to each other is not.
        """
        checks = self.figures.checks
        return not self.figures.certificate.failures and all(
            check.verdict == "ok" for name, check in checks.items() if name != TRUST
        )


async def contend(
    target: str | Callable[[], LockClient],
    *,
    contenders: int = 100,
    rate: float = 200.0,
    duration: float = 5.0,
    keys: int = 1,
    ttl: float = 10.0,
    work: float = 0.0,
    pause: float = 0.0,
    pause_every: int | None = None,
    timeout: float | None = 5.0,
    fence: bool = True,
    processes: int = 1,
    seed: int = 1,
    out: Path | None = None,
) -> Contention:
    """Let contenders fight for locks as `python -m harness` does, and judge them from the recorded history.

    `target` is the URL of a lock server, or a function that makes a client. The contenders live in processes
    of their own, so it must be one that can be imported: defined at the top of a module. The other arguments
    are the flags of the command line; durations are seconds. The run's files go to a new folder in `out`;
    without it they are deleted.

    A cancellation stops every process that was started.

    :raises UsageError: the arguments do not fit together, or the lock server cannot be used.
    :raises ServerError: the fenced resource could not be started.
    """
    for name, value in {"contenders": contenders, "rate": rate, "duration": duration, "keys": keys}.items():
        if value <= 0:
            raise UsageError(f"{name} must be more than 0, not {value}")
    with contextlib.ExitStack() as stack:
        folder = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="harness-")))
        config = RunConfig(
            url=target if isinstance(target, str) else None,
            client=None if isinstance(target, str) else _name_of(target),
            contenders=contenders,
            rate=rate,
            duration=duration,
            keys=keys,
            ttl=ttl,
            work=work,
            pause=pause,
            pause_every=pause_every,
            timeout=timeout,
            fence=fence,
            processes=processes,
            seed=seed,
            out=str(folder),
        )
        finished = await run_load(config)
    summary = finished.summary
    found = [
        f"{name}: {finding}"
        for name, check in summary.checks.items()
        if check.verdict != "ok"
        for finding in check.findings or [check.verdict]
    ]
    return Contention(
        verdict=summary.verdict,
        findings=tuple(map(str, found)),
        figures=summary,
        folder=finished.folder if out else None,
    )


def _name_of(factory: Callable[[], LockClient]) -> str:
    """:raises UsageError: another process could not find it by its name."""
    name = f"{getattr(factory, '__module__', '?')}:{getattr(factory, '__qualname__', '?')}"
    try:
        found = pkgutil.resolve_name(name)
    except (ValueError, ImportError, AttributeError):
        found = None
    if found is not factory or name.startswith("__main__:"):
        raise UsageError(
            f"{name} cannot be imported by the contenders' processes: define it at the top of a module"
        )
    return name
