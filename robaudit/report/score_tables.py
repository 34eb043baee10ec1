"""Scores of radii, of one run or of two side by side, for terminals and as CSV."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from robaudit.compare.matching import check_same_images, check_same_noise
from robaudit.errors import NothingLeftError, RunError, SpecError
from robaudit.report import numbers
from robaudit.report.sections import Ask, Found, Section, Sheet
from robaudit.report.summary_tables import MEANINGS as QUANTITIES
from robaudit.report.summary_tables import run_names
from robaudit.report.tables import Column, Table, Terminal, cells
from robaudit.report.words import BOOTSTRAP
from robaudit.stats.intervals import ROW_CONFIDENCE
from robaudit.stats.scores import (
    MEANINGS,
    RADII,
    Change,
    Radii,
    ScoreChanges,
    Scores,
    ScoreValue,
    radii_of,
    score_changes,
    scores_of,
)
from robaudit.store.run import Run
from robaudit.text import count

_NOTE = f"[ ] 95 % {BOOTSTRAP}."


class Compared(NamedTuple):
    """The scores of a run and of the one that it is compared with, whose name this has."""

    base: str
    changes: ScoreChanges


class ScoreSection(Section[Scores | Compared]):
    """Scores of radii: mean and minimum, relative to how difficult the images are, and on easy against hard images."""

    uses = Section.uses | {"only", "confidence"}

    def applies(self, run: Run) -> bool:
        """Whether it has labels and radii."""
        return run.info["clean_accuracy"] is not None and not set(RADII).isdisjoint(run.quantities)

    def find(self, runs: Sequence[Run], ask: Ask) -> list[Found[Scores | Compared]]:
        """The scores of a run; of several, each further run against the first, on the images that both have.

        Raises:
            RunError: a run has none that the first has, or other images under the same ids, or other noise under the same name.
        """
        if len(runs) == 1:
            return super().find(runs, ask)
        base, first, names = runs[0], _radii(runs[0], ask), run_names(runs)
        return [
            Found(name, new, Compared(names[0], changes))
            for name, new in zip(names[1:], runs[1:], strict=True)
            for changes in _paired((base, new), (first, _radii(new, ask)), _confidence(ask))
        ]

    def records(self, run: Run, ask: Ask) -> list[Scores | Compared]:
        """The scores of each result."""
        return [scores_of(one, _confidence(ask)) for one in _radii(run, ask)]

    def table(self, one: Found[Scores | Compared], ask: Ask) -> Terminal:
        """A line for each score; of two runs, with the difference."""
        found = one.record
        return score_table(found) if isinstance(found, Scores) else change_table(found.changes, (found.base, one.name))

    def sheet(self, one: Found[Scores | Compared], ask: Ask) -> Sheet:
        """The same with the ends of what is measured."""
        return scores_sheet(one.record) if isinstance(one.record, Scores) else changes_sheet(one.record)

    def document(self, one: Found[Scores | Compared], ask: Ask) -> dict[str, Any]:
        """All scores."""
        found = one.record
        return found.document() if isinstance(found, Scores) else {"base": found.base, **found.changes.document()}


def _confidence(ask: Ask) -> float:
    return ROW_CONFIDENCE if ask.confidence is None else ask.confidence


def _radii(run: Run, ask: Ask) -> list[Radii]:
    """The radii of a run, or those of its correct images.

    Raises:
        SpecError: those of the misclassified ones are asked for, which are 0.
        NothingLeftError: every image is misclassified.
    """
    found = radii_of(run, ask.estimators, ask.levels)
    if ask.only is None:
        return found
    if ask.only == "wrong":
        raise SpecError("--only wrong", "does not apply to the section scores: misclassified images count as 0", "use --only correct")
    for one in found:
        if not one.correct.any():
            raise NothingLeftError(str(run.path), f"{one.key}: every image is misclassified", "leave --only correct out")
    return [one.only_correct() for one in found]


def _paired(runs: tuple[Run, Run], found: tuple[list[Radii], list[Radii]], confidence: float) -> Iterator[ScoreChanges]:
    """The results that both runs have, compared.

    Raises:
        RunError: there is none, or the runs have different images under the same ids, or different noise under the same name.
    """
    check_same_images(*runs)
    check_same_noise(*runs)
    base, new = runs
    there = {one.key: one for one in found[1]}
    pairs = [(one, there[one.key]) for one in found[0] if one.key in there]
    if not pairs:
        raise RunError(str(new.path), f"has no radii that {base.path} has", f"it has {', '.join(map(str, there))}")
    for pair in pairs:
        yield score_changes(*pair, f"{base.path} and {new.path}", confidence)


def score_table(scores: Scores) -> Terminal:
    """A line for each score of one result."""
    return Terminal(lambda _: [table_of(scores)])


def table_of(scores: Scores, *, page: bool = False) -> Table:
    """The same as a table; ``page``: with mathematical signs."""
    shown = [(score, one) for score, one in scores.values.items() if one.value is not None]
    rows = [cells((score, numbers.signs(text(one)) if page else text(one), interval(one), MEANINGS[score])) for score, one in shown]
    columns = (
        Column("score"),
        Column("value", number=True),
        Column(f"[{_percent(scores)} interval]", number=True),
        Column("meaning", wrap=True),
    )
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
                    *(f"{text(one)} {_tight(interval(one), narrow)}".strip() for one in (change.base, change.new)),
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


def scores_sheet(scores: Scores) -> Sheet:
    """A line for each score of one result."""
    lines = [[*_key(scores.radii), score.value, *_numbers(one), one.at_least, one.why] for score, one in scores.values.items()]
    heads = ["value", "lower", "upper", "measured_lower", "measured_upper", "at_least", "undefined"]
    return Sheet([*_KEY, "score", *heads], lines)


def changes_sheet(compared: Compared) -> Sheet:
    """A line for each score of one result of two runs."""
    sides = [f"{side}_{name}" for side in ("base", "new") for name in ("value", "lower", "upper", "measured_lower", "measured_upper")]
    key = [compared.base, *_key(compared.changes.base.radii)]
    lines = [
        [*key, score.value, *_numbers(change.base), *_numbers(change.new), change.value, change.lower, change.upper]
        for score, change in compared.changes.changes.items()
    ]
    return Sheet(["base", *_KEY, "score", *sides, "difference", "difference_lower", "difference_upper"], lines)


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
    """The interval for the population; open where censored images leave it open."""
    if one.lower is None or one.upper is None:
        return ""
    lower, upper = ("..." if math.isinf(end) else f"{end:.4g}" for end in (one.lower, one.upper))
    return f"[{lower}, {upper}]"


def _tight(ends: str, narrow: bool) -> str:
    return ends.replace(", ", ",") if narrow else ends


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
