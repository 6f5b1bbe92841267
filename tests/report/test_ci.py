"""A verdict for machines that build: what fails there is what is wrong, and anything can be written."""

from pathlib import Path
from xml.etree import ElementTree

from harness.judge.checkers.result import CheckResult
from harness.report.ci import annotations, write_junit
from harness.report.model import Judgement

CHECKS = {
    "exclusion": CheckResult("ok"),
    "holders": CheckResult("violated", ["two at once on '\x00<key>'", "and again on \ud800\ufffe"]),
    "completeness": CheckResult("unknown", ["cut off: 50%,\nnobody knows"]),
}
THRESHOLDS = [
    Judgement("failed==0", True, 0.0, "failed==0: passed, it was 0", "0"),
    Judgement("acquire.p99<1us", False, 4.8, "acquire.p99<1us: failed, it was 4.8 ms", "4.8 ms"),
]


def test_a_violation_fails_what_is_unknown_is_an_error_and_the_rest_passes(tmp_path: Path) -> None:
    path = tmp_path / "new" / "junit.xml"
    write_junit(path, CHECKS, THRESHOLDS, seconds=1.5)
    suite = ElementTree.parse(path).getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("5", "2", "1")
    faults = {case.get("name"): [fault.tag for fault in case] for case in suite}
    assert faults == {
        "exclusion": [],
        "holders": ["failure"],
        "completeness": ["error"],
        "failed==0": [],
        "acquire.p99<1us": ["failure"],
    }
    said = suite.find("testcase[@name='holders']/failure")
    assert said is not None
    assert said.get("message") == "two at once on '\ufffd<key>'"
    assert "and again on \ufffd\ufffd" in (said.text or "")


def test_annotations_are_one_line_each() -> None:
    assert list(annotations(CHECKS, THRESHOLDS)) == [
        "::error title=holders::two at once on '\x00<key>'",
        "::warning title=completeness::cut off: 50%25,%0Anobody knows",
        "::error title=acquire.p99<1us::acquire.p99<1us: failed, it was 4.8 ms",
    ]
