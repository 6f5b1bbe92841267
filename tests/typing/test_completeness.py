"""Every public name of the library has a type that all type checkers read alike."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_public_type_is_known() -> None:
    """Annotate an attribute where it is first assigned: checkers infer its type by rules of their own."""
    # External: what redis-py, aetcd and kazoo leave without a type.
    options = ("--outputjson", "--verifytypes", "asyncdlock", "--ignoreexternal")
    verified = subprocess.run(
        [sys.executable, "-m", "pyright", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(verified.stdout)["typeCompleteness"]
    vague = [
        f"{symbol['name']}: {diagnostic['message']}"
        for symbol in found["symbols"]
        if symbol["isTypeAmbiguous"] or not symbol["isTypeKnown"]
        for diagnostic in symbol["diagnostics"]
    ]
    assert vague == [], "\n".join(vague)
    assert found["completenessScore"] == 1
    assert found["exportedSymbolCounts"]["withKnownType"] > 1000  # it found the library
