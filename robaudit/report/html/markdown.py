"""Runs as Markdown, short enough for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from robaudit.report.html import facts
from robaudit.report.html.content import Content, PageSection
from robaudit.report.html.verdict import flag_sentence, gate_line, glance, sentence
from robaudit.report.sections import FLAGGED
from robaudit.report.tables import Table, markdown, markdown_blocks, within
from robaudit.text import clipped

MOST = 60_000
"""Bytes; a comment of GitHub's holds 65,536 characters."""

# Listed samples of a result, from many to none, until the report is short enough.
_SAMPLES = (20, 8, 3, 0)
_MOST_WARNINGS = 10
_LONGEST_LINE = 500
_CUT = "\nThis report was cut here: the HTML report has the rest.\n"


def markdown_report(content: Content, *, title: str | None = None) -> str:
    """Verdict and tables of one or several runs, under 60,000 bytes: it lists fewer samples where
    there are too many.

    Args:
        content: of the runs.
        title: the heading; by default, made from the names of the runs.
    """
    text = ""
    for samples in _SAMPLES:
        text = "\n\n".join(_blocks(content, title, samples)) + "\n"
        if len(text.encode()) <= MOST:
            return text
    return within(text, MOST, _CUT)


def _blocks(content: Content, title: str | None, samples: int) -> Iterator[str]:
    """The paragraphs and tables."""
    views = content.views
    heading = title or f"Robustness of {', '.join(view.name for view in views)}"
    yield f"# {markdown(clipped(heading, _LONGEST_LINE))}"
    for view in views:
        name = f"{view.name}: " if len(views) > 1 else ""
        for warning in view.run.info.notices[:_MOST_WARNINGS]:
            yield f"**Warning:** {markdown(clipped(name + warning, _LONGEST_LINE))}"
        if gates := gate_line(view)[1]:
            yield f"**{markdown(name + gates)}**"
        yield f"**{markdown(name + sentence(view))}**"
        if flags := flag_sentence(content, view):
            yield markdown(name + flags)
        yield markdown(facts.facts(view))
    yield from markdown_blocks(glance(content))
    for view in views:
        if view.decisions:
            yield from markdown_blocks(facts.decision_table(view.decisions))
    for part in content.parts:
        yield f"## {markdown(part.section.title)}"
        if part.section.words:
            yield markdown(part.section.words)
        for table in _tables(part, samples):
            yield from markdown_blocks(table)
    yield "## Provenance"
    yield from markdown_blocks(facts.provenance(views))


def _tables(part: PageSection, samples: int) -> Sequence[Table]:
    """The tables of a section; of the flagged samples at most ``samples``, and none that are not
    flagged."""
    if part.name != FLAGGED:
        return part.tables
    listed = []
    for entry in part.entries:
        shown = min(samples, entry.record.beyond)
        flagged = replace(entry.record, samples=entry.record.samples[:shown])
        listed.append(replace(entry, record=flagged))
    tables = part.section.shown(listed, part.request)
    rest = sum(entry.record.beyond - len(entry.record.samples) for entry in listed)
    return [*tables, Table(notes=(f"{rest:,} more are not listed.",))] if rest else tables
