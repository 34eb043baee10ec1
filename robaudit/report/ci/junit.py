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
from xml.etree import ElementTree

from robaudit.gates.decide import Decision, Verdict
from robaudit.gates.decision_text import sentence
from robaudit.report.ci.document import Subject
from robaudit.text import printable

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
    cases: list[tuple[str, str, str | None, Verdict]] = [
        ("warning", text, "skipped", "pass") for text in subject.untold(decisions)
    ]
    for decision in decisions:
        cases.append(
            (
                str(decision.gate),
                sentence(decision),
                _element(decision.verdict, inconclusive),
                decision.verdict,
            )
        )
    elements = [element for _, _, element, _ in cases]
    counts = {
        "tests": str(len(cases)),
        "failures": str(elements.count("failure")),
        "errors": str(elements.count("error")),
        "skipped": str(elements.count("skipped")),
        "time": "0",
    }
    root = ElementTree.Element("testsuites", {"name": f"robaudit {subject.command}", **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": printable(subject.name), **counts})
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(subject):
        ElementTree.SubElement(properties, "property", {"name": name, "value": printable(value)})
    for name, text, element, verdict in cases:
        about = {
            "classname": printable(f"robaudit.{subject.name}"),
            "name": printable(name),
            "time": "0",
        }
        node = ElementTree.SubElement(suite, "testcase", about)
        if element is None:
            ElementTree.SubElement(node, "system-out").text = printable(text)
        else:
            kind = {} if element == "skipped" else {"type": verdict}
            ElementTree.SubElement(node, element, {"message": printable(text), **kind})
    ElementTree.indent(root)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        + ElementTree.tostring(root, encoding="unicode")
        + "\n"
    )


def _element(verdict: Verdict, inconclusive: Verdict) -> str | None:
    if verdict == "inconclusive":
        return _ELEMENTS[inconclusive]
    return "failure" if verdict == "fail" else None


def _properties(subject: Subject) -> Iterator[tuple[str, str]]:
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
