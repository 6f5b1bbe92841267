"""A client belongs to the process that made it: a forked child is refused, and its parent never notices."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import LOOPS
from tests.contract.cases import CASES, Case

PROGRAM = Path(__file__).with_name("forking.py")
_WAYS = [
    pytest.param(case, way, id=f"{case}-{way}")
    for case in CASES
    if not case.options  # those are in tests/kinds/test_renew_in.py
    for way in ("use", "collect", "tear down")
]
REFUSED = "LockError: this client belongs to another process; connect() after fork"


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("case", "way"), _WAYS)
def test_a_forked_child_is_refused_and_its_parent_not_disturbed(
    case: Case, url: str, key: str, way: str, loop: str
) -> None:
    done = asyncio.run(_run(url, key, way, loop))
    child = done.pop("child")
    assert done == {"status": 0, "refused": True, "released": [True, True, True], "owners": 2}
    if way == "use":
        lost = "was lost: it is held by the process that this one was forked from"
        assert child.pop("check").endswith(lost)
        assert child.pop("renew").endswith(lost)
        assert (child.pop("held"), child.pop("remaining")) == ("False", "0.0")
        assert child.pop("aclose") == "returned None"
        verbs = ("acquire", "try_acquire", "hold", "raise_fence", "inspect", "force_release", "release")
        assert child == dict.fromkeys(verbs, REFUSED)


async def _run(url: str, key: str, way: str, loop: str) -> dict[str, Any]:
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.contract.forking",
        url,
        key,
        way,
        loop,
        cwd=PROGRAM.parents[2],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(program.communicate(), 200.0)
    assert program.returncode == 0, err.decode()
    found: dict[str, Any] = json.loads(out)
    return found
