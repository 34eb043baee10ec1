"""A run as Markdown, short enough for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from robaudit.report import curve_tables, numbers, words
from robaudit.report.certified_tables import OfRun, page_tables
from robaudit.report.flag_tables import is_beyond
from robaudit.report.html import facts, tables
from robaudit.report.html.content import Content
from robaudit.report.html.verdict import NO_THRESHOLD, flag_rule, sentence
from robaudit.report.loss_tables import loss_table
from robaudit.report.pictures.losses import failed_attacks
from robaudit.report.score_tables import table_of
from robaudit.report.summary_tables import run_names
from robaudit.report.tables import Table, cells, columns, markdown, markdown_table, within
from robaudit.report.words import bracketed_certainties
from robaudit.stats.curves import Curves
from robaudit.stats.flags import Flagged
from robaudit.text import class_name, clipped

MOST = 60_000
"""Bytes; a comment of GitHub's holds 65,536 characters."""

_CUT = "\nThis report was cut here: the HTML report has the rest.\n"
_SAMPLES = (20, 8, 3, 0)
_LONGEST = 120


def markdown_report(contents: Sequence[Content], *, title: str | None = None) -> str:
    """Verdict and tables of one or several runs, under 60,000 bytes: it lists fewer samples where there are too many.

    Args:
        contents: of the runs, at least one.
        title: the heading; by default, made from the names of the runs.
    """
    text = ""
    for samples in _SAMPLES:
        text = "\n".join(_lines(contents, title, samples)) + "\n"
        if len(text.encode()) <= MOST:
            return text
    return within(text, MOST, _CUT)


def _lines(contents: Sequence[Content], title: str | None, samples: int) -> Iterator[str]:
    names = [clipped(name, _LONGEST) for name in run_names([content.run for content in contents])]
    yield f"# {markdown(clipped(title or 'Robustness of ' + ', '.join(names), 500))}"
    if len(contents) > 1:
        yield from ("", "## Comparison", "")
        for content, name in zip(contents, names, strict=True):
            yield from _warnings(content, f"{name}: ")
        yield from (markdown(note) for note in tables.comparison_notes(contents))
        for table in tables.comparison_tables(contents, names):
            yield from ("", markdown(table.heading), *markdown_table(table))
        yield from _certified(tables.certified_together(contents, names))
        yield from _curves(tables.curves_together(contents, names))
    for content, name in zip(contents, names, strict=True):
        if len(contents) > 1:
            yield from ("", f"## {markdown(name)}")
        yield from _run(content, samples)


def _warnings(content: Content, name: str = "") -> Iterator[str]:
    return (f"**Warning:** {markdown(clipped(name + warning, 500))}\n" for warning in content.run.info["warnings"][:10])


def _run(content: Content, samples: int) -> Iterator[str]:
    yield ""
    yield from _warnings(content)
    yield from (f"**{markdown(sentence(content))}**", "", markdown(facts.facts(content)), "")
    if content.decisions:
        yield from ("### Gates", *markdown_table(facts.decision_table(content.decisions)))
    yield "### Accuracy"
    accuracy = tables.accuracy_table(content)
    yield from markdown_table(accuracy) if accuracy.rows else ("", "Not measured: the data have no labels.", "")
    robustness = tables.robustness_tables(content)
    if robustness:
        yield "### Robustness"
    for table in robustness:
        yield from ("", markdown(table.heading), *markdown_table(table))
    yield from (markdown(words.COVER), "")
    yield from _of_quantities(content)
    yield "### Classes, least robust first"
    for bias in content.biases:
        view = tables.class_view(content, bias)
        yield from (
            "",
            f"**{markdown(view.title)}**: {markdown(words.gap_sentence(bias))}",
            *markdown_table(view.table),
        )
        if view.best is not None and view.rest is not None:
            yield from ("The most robust:", *markdown_table(view.best), f"{len(view.rest.rows)} more classes lie between them.", "")
    yield "### Flagged samples"
    for flagged in content.flagged:
        yield from _flagged(content, flagged, samples)
    if content.agreements:
        yield from ("### Agreement", *markdown_table(tables.agreement_table(content)))
    yield from ("### Cost", *markdown_table(tables.cost_table(content)), "### Provenance", "")
    yield from (f"- {markdown(name)}: {markdown(clipped(text, 500))}" for name, text in facts.provenance(content))


def _of_quantities(content: Content) -> Iterator[str]:
    """Sections about results of one quantity, where the run has some."""
    if content.losses:
        loss = loss_table(content.losses, content.by_key(), content.levels)
        yield from ("### Between the average and the worst case", "", markdown(loss.heading), *markdown_table(loss))
        for text in filter(None, (*tables.LOSS_WORDS, failed_attacks(content.losses))):
            yield from (markdown(text), "")
    if content.scores:
        yield from ("### Radius and difficulty", "", markdown(tables.SCORE_WORDS), "")
        for one in content.scores:
            table = table_of(one, page=True)
            yield from ("", markdown(table.heading), "", *map(markdown, table.lines), *markdown_table(table))
    yield from _certified(content.certified)
    yield from _curves([content.curves] if content.curves is not None else [])


def _certified(every: Sequence[OfRun]) -> Iterator[str]:
    if every:
        yield from ("### Certified accuracy", "", markdown(tables.CERTIFIED_WORDS), "")
        for table in page_tables(every):
            yield from ("", markdown(table.heading), "", *map(markdown, table.lines), *markdown_table(table))


def _curves(every: Sequence[Curves]) -> Iterator[str]:
    if every:
        yield from ("### Error curves", "", markdown(tables.CURVE_WORDS), "")
        for table in curve_tables.page_tables(every):
            yield from ("", markdown(table.heading), *markdown_table(table))


def _flagged(content: Content, flagged: Flagged, most: int) -> Iterator[str]:
    level, names, quantity = content.levels[flagged.key.at], content.run.class_names, content.quantity(flagged.key.quantity)
    many = f"{flagged.beyond:,} of {flagged.total:,}{bracketed_certainties(flagged)}"
    what = f"{flagged.key.estimator}, {level}: {many}: {flag_rule(flagged)}."
    if not flagged.has_threshold:
        what = f"{flagged.key.estimator}, {level}: {NO_THRESHOLD}."
    listed = [sample for sample in flagged.samples if is_beyond(sample, flagged)][:most]
    rest = flagged.beyond - len(listed)
    yield from ("", markdown(what), "")
    if listed:
        rows = []
        for one in listed:
            classes = [class_name(index, names, 40) for index in (one.label, one.predicted, one.flips_to)]
            value = numbers.sample_number(one, quantity), numbers.interval(one.lower, one.upper)
            rows.append(cells((one.id, *classes, *value, one.certainty)))
        heads = (flagged.key.quantity, "95% interval", "certainty")
        yield from markdown_table(Table("", columns(("sample", "label", "predicted", "flips to"), heads), tuple(rows)))[1:]
    if rest:
        yield from (f"{rest:,} more are not listed.", "")
