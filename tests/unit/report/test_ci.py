"""What pipelines read: JUnit XML, GitHub's commands and step summary, and JSON that its published
schema accepts."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robaudit.cli.output_streams import append_step_summary
from robaudit.estimates import Covers, Estimate
from robaudit.gates.decide import EXIT_CODES, Decision, Verdict, overall
from robaudit.gates.measure import ClassPart
from robaudit.levels import LevelName
from robaudit.report.ci.document import Subject, Weights, gates_json, published
from robaudit.report.ci.github import github, step_summary
from robaudit.report.ci.junit import junit
from robaudit.spec.gate_grammar import Gate
from tests.golden import Golden
from tests.levels import sigma

SUBJECT = Subject("gate", "night <run>", Weights("net.pt", "ab" * 32), "cd" * 32, "0.1.0")
HOSTILE = (
    "</testsuite>\x00\x1b[31m\ud800 | ]]> ::error::x\r\n::error::<script>alert(1)</script> "
    "100%, a:b `x` [y](z) \u202e"
)


def made(verdict: Verdict, quantity: str = "mean", **fields: Any) -> Decision:
    gate = Gate(quantity, ">=", 0.9).with_result("mc", sigma(0.05))
    value = {"pass": 0.95, "fail": 0.5, "inconclusive": 0.9}[verdict]
    estimate = Estimate.measured(
        value, (round(value - 0.01, 2), round(value + 0.01, 2)), "clopper-pearson:pooled"
    )
    return replace(Decision(gate, estimate, 0.95, verdict), **fields)


def part(
    index: int, name: str | None, images: int, value: float, lower: float, upper: float
) -> ClassPart:
    return ClassPart(index, name, images, Estimate(value, lower, upper))


PARTS = (
    part(1, "cat", 10, 0.5, 0.4, 0.6),
    part(0, None, 8, 0.9, 0.8, 0.95),
    part(2, "3", 5, 0.99, 0.95, 1.0),
)
CLASSES = made("fail", "worst_class", classes=PARTS)
VERDICTS: tuple[Verdict, ...] = ("pass", "fail", "inconclusive")
texts = st.text(st.characters(), max_size=12) | st.just(HOSTILE)
numbers = st.floats(-1e100, 1e100) | st.sampled_from([0.0, 1.0, -math.inf, math.inf])
parts = st.builds(
    ClassPart,
    st.integers(0, 2000),
    st.none() | texts,
    st.integers(1, 9),
    st.builds(
        Estimate, st.floats(0, 1) | st.just(math.nan), st.none() | numbers, st.none() | numbers
    ),
)
decisions = st.lists(
    st.builds(
        Decision,
        gate=st.builds(
            Gate,
            st.sampled_from(["mean", "worst_class", "class_gap", "newly_flagged"]),
            st.sampled_from([">=", "<="]),
            st.floats(-1, 1),
            st.none() | texts,
            st.none() | texts,
            st.none() | st.floats(0.01, 1),
            st.none() | st.sampled_from(LevelName),
        ),
        estimate=st.builds(
            Estimate,
            numbers,
            st.none() | numbers,
            st.none() | numbers,
            texts,
            st.sampled_from(Covers),
        ),
        confidence=st.just(0.95),
        verdict=st.sampled_from(VERDICTS),
        evidence=texts,
        more=st.none() | st.integers(1, 10**9),
        classes=st.lists(parts, max_size=3).map(tuple),
    ),
    max_size=13,
)
weights = st.builds(Weights, texts, texts)
subjects = st.builds(
    Subject, st.just("gate"), texts, weights, texts, st.none() | texts, st.none() | st.just(SUBJECT)
)
counts_as = st.sampled_from(VERDICTS)


def suite_of(xml: str) -> ElementTree.Element:
    """The only suite; its counts and the root's are those of its cases."""
    root = ElementTree.fromstring(xml)  # noqa: S314  ours
    assert root.tag == "testsuites"
    (suite,) = root
    cases = suite.findall("testcase")
    for node in (root, suite):
        assert int(node.attrib["tests"]) == len(cases)
        for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(node.attrib[count]) == len(suite.findall(f"testcase/{tag}"))
    assert [node.tag for node in suite] == ["properties"] + ["testcase"] * len(cases)
    for case in cases:
        assert {"name", "classname"} <= set(case.attrib)
        assert [node.tag for node in case] in (["failure"], ["error"], ["skipped"], ["system-out"])
    return suite


@settings(max_examples=25)
@given(decisions, subjects, counts_as)
def test_junit_is_well_formed_whatever_the_names(
    given_: list[Decision], subject: Subject, inconclusive: Verdict
) -> None:
    xml = junit(given_, subject, inconclusive=inconclusive)
    suite = suite_of(xml)
    assert len(suite.findall("testcase")) == len(given_)
    xml.encode()
    red = suite.findall("testcase/failure") + suite.findall("testcase/error")
    assert bool(red) == (overall(given_, inconclusive) != "pass"), (
        "red exactly when the exit code is not 0"
    )


def test_junit_cases_of_gates() -> None:
    suite = suite_of(junit([made("pass"), CLASSES], SUBJECT))
    assert suite.attrib["name"] == "night <run>"
    cases = [(case.attrib["name"], case[0].tag) for case in suite.findall("testcase")]
    assert cases == [
        ("mean(estimator=mc, sigma=0.05) >= 0.9", "system-out"),
        ("worst_class(estimator=mc, sigma=0.05) >= 0.9", "failure"),
    ]
    assert {p.attrib["name"]: p.attrib["value"] for p in suite[0]}["model sha256"] == "ab" * 32


@pytest.mark.parametrize(
    ("inconclusive", "tag"), [("inconclusive", "error"), ("fail", "failure"), ("pass", "skipped")]
)
def test_junit_inconclusive_is_what_it_counts_as(inconclusive: Verdict, tag: str) -> None:
    (case,) = suite_of(junit([made("inconclusive")], SUBJECT, inconclusive=inconclusive)).findall(
        "testcase"
    )
    assert case[0].tag == tag
    assert "inconclusive" in case[0].attrib["message"]


COMMAND = re.compile(r"::(error|warning|notice) title=([^:,\r\n]*)::([^\r\n]*)")


@settings(max_examples=25)
@given(decisions, subjects, counts_as)
def test_github_commands_hold_on_their_line(
    given_: list[Decision], subject: Subject, inconclusive: Verdict
) -> None:
    text = github(given_, subject, inconclusive=inconclusive)
    text.encode()
    lines = text.split("\n")
    assert lines.pop() == ""
    assert len(lines) <= 10
    found = [COMMAND.fullmatch(line) for line in lines]
    assert all(found)
    levels = [match[1] for match in found if match]
    assert levels == sorted(levels, key=["error", "warning", "notice"].index), "failures first"
    if len(given_) < 10:
        assert levels.count("error") == sum(
            one.verdict == "fail" or (one.verdict, inconclusive) == ("inconclusive", "fail")
            for one in given_
        )
    assert all(re.fullmatch(r"(?:[^%]|%(?:25|0A|0D|3A|2C))*", line) for line in lines), (
        "every % is one of ours"
    )


def test_github_says_how_many_more() -> None:
    given_ = [made("pass"), *[made("inconclusive")] * 5, *[made("fail")] * 12]
    lines = github(given_, SUBJECT).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::error"] * 10
    assert lines[-1].endswith(
        "::night <run>: 8 more gates did not pass, 1 passed; all are in the log and the step "
        "summary"
    )
    assert (
        "title=robaudit gate%3A mean(estimator=mc%2C sigma=0.05) >= 0.9::night <run>: mean("
        in lines[0]
    )
    assert (
        github([made("pass")] * 3, SUBJECT)
        == "::notice title=robaudit gate::night <run>: 3 of 3 gates passed\n"
    )
    ten = github([made("fail")] * 10, SUBJECT).splitlines()
    assert len(ten) == 10
    assert "more gates" not in ten[-1]


@settings(max_examples=25)
@given(decisions, subjects, counts_as)
def test_step_summary_shows_names_as_they_are(
    given_: list[Decision], subject: Subject, inconclusive: Verdict
) -> None:
    text = step_summary(given_, subject, inconclusive=inconclusive)
    text.encode()
    assert not re.search(r"<(?!/?$)", text), "no HTML"
    rows = [line for line in text.split("\n") if line.startswith("|")]
    for line in rows:
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) in (4, 5), "no cell breaks out"
    assert text.startswith("### ")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", text)


@settings(max_examples=25)
@given(decisions, subjects, counts_as)
def test_document_is_what_the_schema_says(
    given_: list[Decision], subject: Subject, inconclusive: Verdict
) -> None:
    text = gates_json(given_, subject, inconclusive=inconclusive)
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    VALIDATOR.validate(found)
    assert found["exit_code"] == EXIT_CODES[overall(given_, inconclusive)]
    assert len(found["gates"]) == len(given_)
    for one, values in zip(given_, found["gates"], strict=True):
        lower = one.estimate.lower
        assert values["lower"] == (lower if lower is not None and math.isfinite(lower) else None)


def test_schema_refuses_what_is_no_document() -> None:
    found = json.loads(gates_json([made("pass")], SUBJECT))
    assert VALIDATOR.is_valid(found)
    for key in found:
        assert not VALIDATOR.is_valid(
            {name: value for name, value in found.items() if name != key}
        ), key
    found["gates"][0]["verdict"] = "maybe"
    assert not VALIDATOR.is_valid(found)


def _validator() -> Any:
    from jsonschema import Draft202012Validator

    schema = json.loads(published("gates"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


VALIDATOR = _validator()


def test_step_summary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    path = tmp_path / "summary.md"
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    assert append_step_summary("a\n") is None
    assert not path.exists()
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    assert append_step_summary("a\n") is None
    assert append_step_summary("b\n" * 2**20) is None
    assert path.read_text(encoding="utf-8").startswith("a\nb\n")
    assert 2**20 - 4 <= path.stat().st_size <= 2**20
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    warning = append_step_summary("a\n")
    assert warning is not None
    golden(warning)
