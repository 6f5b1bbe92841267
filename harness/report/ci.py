"""A verdict for CI: a JUnit file, and annotations where GitHub shows them."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from harness.config import UsageError
from harness.judge.checkers.result import CheckResult
from harness.report.model import Judgement

_SUITE = "asyncdlock harness"


class _Test(NamedTuple):
    group: str
    name: str
    fault: str
    """`failure` for what is proven wrong, `error` for what could not be judged; empty for a pass."""
    details: Sequence[str]


def write_junit(
    path: Path,
    checks: Mapping[str, CheckResult],
    thresholds: Sequence[Judgement] = (),
    *,
    seconds: float = 0.0,
) -> None:
    """One test for each check and each threshold.

    :raises OSError: the file cannot be written.
    """
    tests = list(_tests(checks, thresholds))
    suite = ElementTree.Element(
        "testsuite",
        name=_SUITE,
        tests=str(len(tests)),
        failures=str(sum(test.fault == "failure" for test in tests)),
        errors=str(sum(test.fault == "error" for test in tests)),
        skipped="0",
        time=f"{seconds:.3f}",
    )
    for test in tests:
        case = ElementTree.SubElement(suite, "testcase", classname=f"harness.{test.group}", name=test.name)
        if test.fault:
            message = _printable(test.details[0] if test.details else "no finding was recorded")
            fault = ElementTree.SubElement(case, test.fault, message=message)
            fault.text = _printable("\n".join(test.details))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")


def check_writable(path: Path) -> None:
    """:raises UsageError: `write_junit` could not write there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    except OSError as error:
        raise UsageError(f"--junit {str(path)!r} cannot be written: {error.strerror or error}") from None


def annotations(checks: Mapping[str, CheckResult], thresholds: Sequence[Judgement] = ()) -> Iterator[str]:
    """Workflow commands of GitHub Actions, a line each: errors for what is wrong, warnings for the rest."""
    for test in _tests(checks, thresholds):
        if test.fault:
            level = "error" if test.fault == "failure" else "warning"
            title = _escaped(test.name).replace(",", "%2C").replace(":", "%3A")
            yield f"::{level} title={title}::{_escaped(test.details[0] if test.details else test.name)}"


def _tests(checks: Mapping[str, CheckResult], thresholds: Sequence[Judgement]) -> Iterator[_Test]:
    faults = {"ok": "", "violated": "failure", "unknown": "error"}
    for name, check in checks.items():
        yield _Test("check", name, faults[check.verdict], check.findings)
    for judgement in thresholds:
        fault = "" if judgement.passed else "failure"
        yield _Test("threshold", judgement.threshold, fault, [judgement.sentence])


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _printable(text: str) -> str:
    """XML has no way to write most control characters and half of a pair, and a key may contain them."""
    return "".join(sign if _in_xml(sign) else "\ufffd" for sign in text)


def _in_xml(sign: str) -> bool:
    return " " <= sign < "\ud800" or "\ue000" <= sign < "\ufffe" or sign > "\uffff" or sign in "\t\n"
