"""A fixture for users' own suites: `lock_harness` puts a lock under contention and fails on a violation.

Loaded by pytest wherever the package is installed, so it imports nothing of the harness until it is used.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from asyncdlock import LockClient
    from harness.embedding import Contention


class LockHarness(Protocol):
    """`await lock_harness(url, …)`: the arguments of `harness.contend`."""

    def __call__(
        self, target: "str | Callable[[], LockClient]", **settings: object
    ) -> "Awaitable[Contention]": ...


@pytest.fixture
def lock_harness() -> LockHarness:
    """Runs `harness.contend`, and fails the test unless the history shows that the lock did its work.

    How punctual the generator was does not matter here: a busy machine fails no test.
    """

    async def check(target: "str | Callable[[], LockClient]", **settings: object) -> "Contention":
        try:
            from harness.embedding import contend
        except ModuleNotFoundError as error:
            pytest.fail(f"{error.name} is missing: pip install 'asyncdlock[harness]'", pytrace=False)
        result = await contend(target, **settings)  # type: ignore[arg-type]
        if not result.safe:
            pytest.fail("\n".join([f"the verdict is {result.verdict}", *result.findings]), pytrace=False)
        return result

    return check
