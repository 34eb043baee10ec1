"""Decided gates as JUnit XML.

One test suite for the run. Its warnings lead, each a test case that is ``<skipped>`` (listed, and
the job continues); a gate on them makes them a failure. Then a test case for each gate. A failed
gate is a ``<failure>``. An inconclusive one depends on ``--inconclusive``: by default an
``<error>`` (JUnit's word for a test without a result; every CI system lists it with the failures,
and the command exits with code 4), with ``--inconclusive pass`` a ``<skipped>``, with
``--inconclusive fail`` a ``<failure>``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from robaudit.gates.decide import Decision, Verdict
from robaudit.gates.decision_text import sentence
from robaudit.report.ci.document import Subject
from robaudit.text import printable

# what an inconclusive gate is in JUnit, by what it counts as
_ELEMENTS = {"fail": "failure", "inconclusive": "error", "pass": "skipped"}


def junit(
    decisions: Sequence[Decision], subject: Subject, *, inconclusive: Verdict = "inconclusive"
) -> str:
    """The text of a JUnit XML file.

    Args:
        decisions: the gates.
        subject: the run.
        inconclusive: what an inconclusive gate counts as.
    """
    cases = [
        _Case("warning", text, "skipped", "pass") for text in subject.unreported_warnings(decisions)
    ]
    for decision in decisions:
        element = _element(decision.verdict, inconclusive)
        cases.append(_Case(str(decision.gate), sentence(decision), element, decision.verdict))
    elements = [case.element for case in cases]
    counts = {
        "tests": str(len(cases)),
        "failures": str(elements.count("failure")),
        "errors": str(elements.count("error")),
        "skipped": str(elements.count("skipped")),
        # Of the audit: gates take no time of their own.
        "time": f"{subject.seconds:.3f}",
    }
    root = ElementTree.Element("testsuites", {"name": f"robaudit {subject.command}", **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": printable(subject.name), **counts})
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(subject):
        ElementTree.SubElement(properties, "property", {"name": name, "value": printable(value)})
    for case in cases:
        # the names of the run and the model may hold characters that XML forbids: printable escapes
        about = {
            "classname": printable(f"robaudit.{subject.name}"),
            "name": printable(case.name),
            "time": "0",
        }
        node = ElementTree.SubElement(suite, "testcase", about)
        if case.element is None:
            ElementTree.SubElement(node, "system-out").text = printable(case.text)
        else:
            kind = {} if case.element == "skipped" else {"type": case.verdict}
            message = {"message": printable(case.text), **kind}
            ElementTree.SubElement(node, case.element, message)
    ElementTree.indent(root)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        + ElementTree.tostring(root, encoding="unicode")
        + "\n"
    )


class _Case(NamedTuple):
    """A test case: its name, what it says, and the element that it has unless it passed."""

    name: str
    text: str
    element: str | None
    verdict: Verdict


def _element(verdict: Verdict, inconclusive: Verdict) -> str | None:
    """The element of a test case; None for one that passed."""
    if verdict == "inconclusive":
        return _ELEMENTS[inconclusive]
    return "failure" if verdict == "fail" else None


def _properties(subject: Subject) -> Iterator[tuple[str, str]]:
    """The names of the suite's properties and their values."""
    for prefix, run in (("", subject), ("base ", subject.against)):
        if run is not None:
            yield f"{prefix}model", run.model.name
            yield f"{prefix}model sha256", run.model.sha256
            yield f"{prefix}run", run.name
            yield f"{prefix}run identity", run.identity
            if run.robaudit is not None:
                yield f"{prefix}robaudit", run.robaudit
    for name, number in subject.counts.items():
        yield f"samples {name.replace('_', ' ')}", str(number)
