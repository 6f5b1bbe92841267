"""Runs tla-checker (npm) on a module: TLA+ in WebAssembly, every state that can be reached."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.models.spin import FOLDER, Checked

PACKAGE = "tla-checker@0.9.0"
VARIABLE = "ASYNCDLOCK_TLA_CHECKER"
"""The folder of the package; without it, that of `npm install --global`."""
_MOST_SECONDS = 240
_MOST_STATES = 2_000_000
_MOST_STEPS = 10_000

_PROGRAM = """
import { readFileSync } from "node:fs";
const [folder, module, cfg] = process.argv.slice(1);
const checker = await import(`${folder}/tla_checker.js`);
checker.initSync({ module: readFileSync(`${folder}/tla_checker_bg.wasm`) });
const source = readFileSync(module, "utf8");
console.log(checker.check_spec_with_cfg(source, cfg, "{}", %d, %d, true, false));
"""


@cache
def missing() -> str:
    """What would have to be installed, and how; empty when nothing has to."""
    if shutil.which("node") is None:
        return "node not installed (Debian: nodejs, npm)"
    if not (_package() / "tla_checker.js").is_file():
        return f"tla-checker not installed (npm install --global {PACKAGE}, or {VARIABLE} names its folder)"
    return ""


@cache
def _package() -> Path:
    if named := os.environ.get(VARIABLE):
        return Path(named)
    if (npm := shutil.which("npm")) is None:
        return Path("nowhere")
    root = subprocess.run([npm, "root", "--global"], capture_output=True, text=True, timeout=_MOST_SECONDS)
    return Path(root.stdout.strip()) / "tla-checker"


def check(module: str, constants: Mapping[str, str], invariants: Sequence[str]) -> Checked:
    """Search `module`, with these constants written as TLA+.

    :raises RuntimeError: the search did not come to its end.
    """
    lines = ["SPECIFICATION Spec", "CONSTANTS", *(f"{name} = {value}" for name, value in constants.items())]
    cfg = "\n".join([*lines, *(f"INVARIANT {name}" for name in invariants)])
    program = _PROGRAM % (_MOST_STATES, _MOST_STEPS)
    words = [
        "node",
        "--input-type=module",
        "-e",
        program,
        str(_package()),
        str(FOLDER / f"{module}.tla"),
        cfg,
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_MOST_SECONDS)
    if done.returncode:
        raise RuntimeError(f"tla-checker failed:\n{done.stderr}")
    found = json.loads(done.stdout)
    if found["success"]:
        return Checked(found["states_explored"], "", "")
    if found["error_type"] != "InvariantViolation":
        raise RuntimeError(f"the search did not come to its end: {found['error_message']}")
    number = int(found["error_message"].split()[1])  # "Invariant 0 violated"
    return Checked(found["states_explored"], invariants[number], "\n".join(found["trace"]))
