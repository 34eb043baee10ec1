"""How does a comparison read in a terminal, as Markdown, as CSV and as JSON?"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from robaudit.compare.result import Comparison, Difference
from robaudit.compare.sections import Section
from robaudit.gates.formats import Subject, decisions_document
from robaudit.gates.formats.github import markdown
from robaudit.gates.result import Decision, Verdict
from robaudit.reports.tables import base_table, plain
from robaudit.store.serialise import table_csv

SCHEMA_VERSION = 1
_COLUMNS = ("base", "new", "difference", "lower", "upper", "method", "population_lower", "population_upper")


def table(sections: Iterable[Section]) -> RenderableType:
    """For a terminal."""
    return Group(*(part for section in sections for part in _rendered(section)))


def _rendered(section: Section) -> Iterator[RenderableType]:
    if section.title:
        yield plain(section.title, "bold")
    yield from map(plain, section.lines)
    if section.columns:
        shown = base_table(narrow=False)
        for i, name in enumerate(section.columns):
            shown.add_column(plain(name), justify="left" if i < section.left else "right")
        for row in section.rows:
            shown.add_row(*map(plain, row))
        yield shown
    yield from (plain(note, "dim") for note in section.notes)
    yield Text()


def markdown_text(sections: Iterable[Section]) -> str:
    """As Markdown."""
    lines: list[str] = []
    for section in sections:
        lines += [f"### {markdown(section.title)}", ""] if section.title else []
        lines += [*(f"- {markdown(line)}" for line in section.lines), ""]
        if section.columns:
            lines += [_cells(section.columns), "|" + "".join(":--|" if i < section.left else "--:|" for i in range(len(section.columns)))]
            lines += [*map(_cells, section.rows), ""]
        lines += [*(f"- {markdown(note)}" for note in section.notes), ""] if section.notes else []
    return "\n".join(lines).rstrip("\n") + "\n"


def _cells(texts: Sequence[str]) -> str:
    return "| " + " | ".join(map(markdown, texts)) + " |"


def csv_text(comparison: Comparison) -> str:
    """A line for clean accuracy, and for each group one for the mean, for accuracy under noise, and for each class."""
    return table_csv(["estimator", "sigma", "what", "class", "images", *_COLUMNS], _lines(comparison))


def _lines(comparison: Comparison) -> Iterator[list[object]]:
    if comparison.clean_accuracy is not None:
        yield [None, None, "clean_accuracy", None, comparison.samples, *_fields(comparison.clean_accuracy)]
    for group in comparison.groups:
        key = [group.key.estimator, group.key.sigma]
        yield [*key, "mean", None, group.images, *_fields(group.mean)]
        if group.noisy_accuracy is not None:
            yield [*key, "noisy_accuracy", None, group.images, *_fields(group.noisy_accuracy)]
        for one in group.classes:
            yield [*key, "class_mean", one.index, one.images, *_fields(one.difference)]


def _fields(found: Difference) -> list[object]:
    these, population = found.these, found.population
    ends = [None, None, "none"] if these is None else list(these)
    return [found.base, found.new, found.value, *ends, *([None, None] if population is None else population[:2])]


def json_text(comparison: Comparison, decisions: Sequence[Decision], subject: Subject, inconclusive: Verdict) -> str:
    """The document of ``robaudit schema --for compare``."""
    return json.dumps(comparison_document(comparison, decisions, subject, inconclusive), indent=2, allow_nan=False) + "\n"


def comparison_document(comparison: Comparison, decisions: Sequence[Decision], subject: Subject, inconclusive: Verdict) -> dict[str, Any]:
    """That of the gates, and what was found."""
    return {**decisions_document(decisions, subject, inconclusive=inconclusive), "comparison": comparison.document()}
