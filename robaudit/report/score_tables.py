"""Scores of radii, of one run or of two side by side, for terminals and as CSV."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from robaudit.report import numbers
from robaudit.report.summary_tables import MEANINGS as QUANTITIES
from robaudit.report.tables import Column, Table, Terminal, cells
from robaudit.report.words import BOOTSTRAP
from robaudit.stats.scores import MEANINGS, Change, Radii, ScoreChanges, Scores, ScoreValue
from robaudit.store.serialise import table_csv
from robaudit.text import count

_NOTE = f"[ ] 95 % {BOOTSTRAP}."


def score_table(scores: Scores) -> Terminal:
    """A line for each score of one result."""
    return Terminal(lambda _: [table_of(scores)])


def table_of(scores: Scores, *, page: bool = False) -> Table:
    """The same as a table; ``page``: with mathematical signs."""
    shown = [(score, one) for score, one in scores.values.items() if one.value is not None]
    rows = [cells((score, numbers.signs(text(one)) if page else text(one), interval(one), MEANINGS[score])) for score, one in shown]
    columns = (Column("score"), Column("value", number=True), Column(f"[{_percent(scores)} interval]", number=True), Column("meaning"))
    head = _heading(scores.radii)
    return Table(head, columns, tuple(rows), (_counts(scores.radii),), notes=(_note(scores), *notes(scores)))


def change_table(changes: ScoreChanges, names: Sequence[str]) -> Terminal:
    """A line for each score of one result in two runs, and their difference."""
    base, new = names

    def build(narrow: bool) -> Iterator[Table]:
        shown = [(score, one) for score, one in changes.changes.items() if one.value is not None]
        rows = [
            cells(
                (
                    score,
                    *(f"{text(one)}{'' if narrow else ' '}{interval(one)}".strip() for one in (change.base, change.new)),
                    difference(change),
                )
            )
            for score, change in shown
        ]
        heads = (base, new, f"{new} - {base}" if not narrow else "difference")
        radii = changes.base.radii
        lines = [f"{_counts(radii)} in {base}; {_counts(changes.new.radii)} in {new}"]
        if changes.only_base or changes.only_new:
            lines.append(f"left out: {count(changes.only_base, 'image')} only in {base}, {changes.only_new:,} only in {new}")
        paired = f"[ ] {_percent(changes.base)} {BOOTSTRAP}; of the difference: the same images drawn for both."
        remarks = dict.fromkeys([*notes(changes.base), *notes(changes.new)])
        columns = (Column("score"), *(Column(head, number=True, wrap=True) for head in heads))
        yield Table(_heading(radii), columns, tuple(rows), tuple(lines), notes=(paired, *remarks))

    return Terminal(build)


def scores_csv(every: Sequence[Scores]) -> str:
    """A line for each result and score."""
    lines = (
        [*_key(scores.radii), score.value, *_numbers(one), one.at_least, one.why]
        for scores in every
        for score, one in scores.values.items()
    )
    heads = ["value", "lower", "upper", "measured_lower", "measured_upper", "at_least", "undefined"]
    return table_csv([*_KEY, "score", *heads], lines)


def changes_csv(every: Sequence[ScoreChanges]) -> str:
    """A line for each result and score of two runs."""
    sides = [f"{side}_{name}" for side in ("base", "new") for name in ("value", "lower", "upper", "measured_lower", "measured_upper")]
    lines = (
        [*_key(one.base.radii), score.value, *_numbers(change.base), *_numbers(change.new), change.value, change.lower, change.upper]
        for one in every
        for score, change in one.changes.items()
    )
    return table_csv([*_KEY, "score", *sides, "difference", "difference_lower", "difference_upper"], lines)


_KEY = ("estimator", "noise", "level_name", "level", "quantity")


def _key(radii: Radii) -> list[object]:
    return list(radii.key.document().values())


def _numbers(one: ScoreValue) -> tuple[float | None, ...]:
    return one.value, one.lower, one.upper, one.measured_lower, one.measured_upper


def text(one: ScoreValue) -> str:
    """The value: a lower end where censored images leave it open above, "~" where they leave it open on both sides."""
    if one.value is None:
        return numbers.NONE
    if one.at_least:
        return f">= {one.value:.4g}"
    known = one.measured_lower, one.measured_upper
    return f"~{one.value:.4g}" if known == (0.0, 1.0) and 0.0 < one.value < 1.0 else f"{one.value:.4g}"


def interval(one: ScoreValue) -> str:
    """The interval for the population; open above where censored images leave it open."""
    if one.lower is None or one.upper is None:
        return ""
    return f"[{one.lower:.4g}, {'...' if math.isinf(one.upper) else f'{one.upper:.4g}'}]"


def difference(change: Change) -> str:
    """The difference with its interval."""
    if change.value is None:
        return numbers.NONE
    if change.lower is None or change.upper is None:
        return f"{change.value:+.4g}"
    ends = ", ".join("..." if math.isinf(end) else f"{end:+.4g}" for end in (change.lower, change.upper))
    return f"{change.value:+.4g} [{ends}]"


def notes(scores: Scores) -> Iterator[str]:
    """What the scores of a result leave out or open, and why some are missing."""
    radii = scores.radii
    if radii.upper_bounds:
        yield "Upper bounds: scores of the radii that were found; the true ones may be smaller."
    if censored := int(radii.censored.sum()):
        yield f">= {censored:,} of {count(len(radii.ids), 'image')} only known to be beyond {radii.cap:.4g}."
    if radii.measured:
        yield "The interval of each image is no part of [ ]; the spread of the values is. --format json has the scores of its ends."
    if radii.left_out:
        yield f"{count(radii.left_out, 'correct image')} with g <= 0 left out of all ratios."
    if left := radii.unlabelled + radii.not_finite:
        yield f"{count(left, 'image')} left out: no label or no finite value."
    reasons: dict[str, list[str]] = {}
    for score, one in scores.values.items():
        if one.value is None:
            reasons.setdefault(one.why, []).append(score)
    for why, names in reasons.items():
        yield f"Not defined: {', '.join(names)}: {why}."


def _heading(radii: Radii) -> str:
    return f"{radii.key}: {radii.key.quantity}, {QUANTITIES[radii.key.quantity]}"


def _counts(radii: Radii) -> str:
    n, correct = len(radii.ids), int(radii.correct.sum())
    return f"{count(n, 'image')}, {correct:,} correct" + (f", {n - correct:,} misclassified (radius 0)" if correct < n else "")


def _percent(scores: Scores) -> str:
    return f"{100 * scores.confidence:.4g}%"


def _note(scores: Scores) -> str:
    return _NOTE.replace("95 %", f"{100 * scores.confidence:.4g} %")
