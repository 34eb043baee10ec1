"""Decided gates as JUnit XML.

One test suite for the run. Its warnings lead, each a test case that is ``<skipped>`` (listed, and the job continues); a gate on them
makes them a failure. Then a test case for each gate, and one for each class of a gate that has classes. A failed gate is a
``<failure>``. An inconclusive one depends on ``--inconclusive``: by default an ``<error>`` (JUnit's word for a test without a result;
every CI system lists it with the failures, and the command exits with code 4), with ``--inconclusive pass`` a ``<skipped>``
(listed, and the job continues), with ``--inconclusive fail`` a ``<failure>``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from robaudit.gates.decide import Decision, Verdict, judge
from robaudit.gates.measure import ClassPart
from robaudit.gates.text import class_numbers, sentence
from robaudit.report.ci.document import Subject
from robaudit.text import count, printable

_WORST_FIRST = {"pass": 0, "inconclusive": 1, "fail": 2}
_ELEMENTS = {"fail": "failure", "inconclusive": "error", "pass": "skipped"}


class _Case(NamedTuple):
    group: str
    name: str
    verdict: Verdict
    text: str


def junit(decisions: Sequence[Decision], subject: Subject, *, inconclusive: Verdict = "inconclusive") -> str:
    """The text of a JUnit XML file.

    Args:
        decisions: the gates.
        subject: the run.
        inconclusive: what an inconclusive gate counts as.
    """
    cases = [_Case(f"robaudit.{subject.name}", "warning", "pass", text) for text in subject.untold(decisions)]
    elements: list[str | None] = ["skipped"] * len(cases)
    gated = [case for decision in decisions for case in _cases(decision, subject)]
    cases += gated
    elements += [_element(case.verdict, inconclusive) for case in gated]
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
    for case, element in zip(cases, elements, strict=True):
        node = ElementTree.SubElement(suite, "testcase", {"classname": printable(case.group), "name": printable(case.name), "time": "0"})
        if element is not None:
            about = {"message": printable(case.text)} if element == "skipped" else {"message": printable(case.text), "type": case.verdict}
            ElementTree.SubElement(node, element, about)
        else:
            ElementTree.SubElement(node, "system-out").text = printable(case.text)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _element(verdict: Verdict, inconclusive: Verdict) -> str | None:
    if verdict == "inconclusive":
        return _ELEMENTS[inconclusive]
    return "failure" if verdict == "fail" else None


def _cases(decision: Decision, subject: Subject) -> Iterator[_Case]:
    """The case of the gate, then one for each of its classes."""
    group = f"robaudit.{subject.name}"
    yield _Case(group, str(decision.gate), decision.verdict, sentence(decision))
    judged = _each_counts(decision)
    for part in decision.classes:
        verdict = _class_verdict(decision, part) if judged else "pass"
        words = f"{f'class {part.text}'}: {class_numbers(part, decision.gate.threshold)}, {count(part.images, 'image')}" + (
            f"; threshold {decision.gate.threshold:.6g}" * judged
        )
        yield _Case(f"{group}.{decision.gate}", f"class {part.text}", verdict, words)


def _each_counts(decision: Decision) -> bool:
    """Whether the gate holds if and only if it holds for every class: its value is the worst class's."""
    values = [part.value for part in decision.classes if not math.isnan(part.value)]
    if not values or not decision.gate.quantity.startswith("worst_class"):
        return False
    return decision.value <= min(values) + 1e-12 if decision.gate.relation == ">=" else decision.value >= max(values) - 1e-12


def _class_verdict(decision: Decision, part: ClassPart) -> Verdict:
    """By the class's own interval (its value without one), and never worse than the gate's verdict."""
    lower, upper = (part.value if end is None else end for end in (part.lower, part.upper))
    verdict = judge(decision.gate.relation, decision.gate.threshold, lower, upper)
    return min(verdict, decision.verdict, key=_WORST_FIRST.__getitem__)


def _properties(subject: Subject) -> Iterator[tuple[str, str]]:
    for prefix, run in (("", subject), ("base ", subject.against)):
        if run is not None:
            yield f"{prefix}model", run.model
            yield f"{prefix}model sha256", run.sha256
            yield f"{prefix}run", run.name
            yield f"{prefix}run identity", run.identity
            if run.robaudit is not None:
                yield f"{prefix}robaudit", run.robaudit
    for name, number in subject.counts.items():
        yield f"samples {name.replace('_', ' ')}", str(number)
