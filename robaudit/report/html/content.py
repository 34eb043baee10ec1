"""The content of a report as plain data: summaries, classes, flagged samples, agreement and cost of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from robaudit.errors import NothingLeftError, RobauditError, RunError
from robaudit.levels import EVERY_LEVEL, GAUSSIAN, LevelChoice, NoiseLevel
from robaudit.names import GRID_STEP, matches
from robaudit.quantities import CERTIFIED, LOSS, Quantity
from robaudit.report import numbers
from robaudit.report.certified_tables import OfRun, of_runs
from robaudit.report.curve_tables import MANY_LEVELS
from robaudit.rows import Row
from robaudit.stats.agreement import Agreement, agreements, comparable
from robaudit.stats.classes import ClassBias, class_bias
from robaudit.stats.curves import LINEAR, CurveKind, Curves, Relation, curves_of
from robaudit.stats.flags import Flagged, flag, usual_threshold
from robaudit.stats.frame import Columns
from robaudit.stats.groups import quantity_of
from robaudit.stats.losses import Losses, losses
from robaudit.stats.scores import RADII, Scores, radii_of, scores_of
from robaudit.stats.summary import GroupSummary, summarise
from robaudit.store.run import Run

Key = tuple[str, NoiseLevel]
T = TypeVar("T")
_FEW = 6  # least robust samples, shown even if none of them is flagged
_EXAMPLES = 2


@dataclass(frozen=True, slots=True)
class Choice:
    """Which part of a run is reported.

    Attributes:
        estimators, levels: only these; empty: all.
        threshold: beyond it a sample is flagged; None: the usual one of each quantity.
        most: the most samples listed for each estimator and noise level.
    """

    estimators: Sequence[str] = ()
    levels: LevelChoice = EVERY_LEVEL
    threshold: float | None = None
    most: int = 60


@dataclass(slots=True)
class GroupTally:
    """One estimator at one noise level.

    Attributes:
        results: how many rows.
        forwards, backwards: passes of all its rows.
        intervals: how many rows have which kind of interval.
    """

    results: int = 0
    forwards: int = 0
    backwards: int = 0
    intervals: Counter[str] = field(default_factory=Counter)

    def add(self, row: Row) -> None:
        """Count one more row."""
        self.results += 1
        self.forwards += row.forwards
        self.backwards += row.backwards
        self.intervals[row.interval.text] += 1


@dataclass(frozen=True, slots=True)
class Content:
    """Everything that is said about one run.

    Attributes:
        run: the run.
        groups: the summaries of the chosen estimators and noise levels, in the run's order.
        tallies: passes and intervals of the same.
        shown: the estimators whose classes and samples are shown: those asked for, else the first that gives probabilities with
            intervals, else the first.
        biases: by class, for each shown estimator and noise level.
        flagged: the samples that are not robust, for the same; at most ``most`` of them are listed.
        agreements: of the estimators of each quantity, at each noise level.
        examples: ids of samples whose noisy copies show what noise looks like.
        whole: whether no estimator or noise level was left out.
        losses: by the order q of their norm, at each noise level that has such results.
        scores: of the results that are radii, where images have labels.
        certified: certified accuracies of the results that are certified radii, where images have labels.
        curves: error curves of a run that was made for them; None where it has none.
        decisions: of the run's gates, as documents: see :func:`robaudit.gates.sources.decisions_of`.
    """

    run: Run
    groups: tuple[GroupSummary, ...]
    tallies: Mapping[Key, GroupTally]
    shown: tuple[str, ...]
    biases: tuple[ClassBias, ...]
    flagged: tuple[Flagged, ...]
    agreements: tuple[Agreement, ...]
    examples: tuple[str, ...]
    whole: bool
    losses: tuple[Losses, ...] = ()
    scores: tuple[Scores, ...] = ()
    certified: tuple[OfRun, ...] = ()
    curves: Curves | None = None
    decisions: tuple[Mapping[str, Any], ...] = ()

    @property
    def levels(self) -> dict[NoiseLevel, str]:
        """The noise levels, and the shortest texts that tell them apart: "sigma 0.05"."""
        return numbers.level_texts(group.key.at for group in self.groups)

    def quantity(self, name: str) -> Quantity:
        """Range and direction of a quantity of the run."""
        return quantity_of(name, self.run.quantities)

    def beside_losses(self) -> Content:
        """The same without the results that are in :attr:`losses`, which have a section of their own; possibly without any."""
        kept = {(one.name, losses.at) for losses in self.losses for one in losses.results}
        groups = tuple(group for group in self.groups if (group.key.estimator, group.key.at) not in kept)
        return self if len(groups) == len(self.groups) else replace(self, groups=groups, whole=False)

    def by_key(self) -> dict[Key, GroupSummary]:
        """The summaries by estimator and noise level."""
        return {(group.key.estimator, group.key.at): group for group in self.groups}

    def main(self) -> list[GroupSummary]:
        """The summaries of the first shown estimator."""
        return [group for group in self.groups if group.key.estimator == self.shown[0]]


def gather(run: Run, choice: Choice) -> Content:
    """Read a run; the rows of a large one are read once, once more for each shown group, and once more to compare estimators.

    Raises:
        NothingLeftError: a group has no finite value.
        RunError: it has no such estimator or noise level.
        RobauditError: a threshold that the quantity cannot have.
    """
    tallies, labelled, examples = dict[Key, GroupTally](), False, dict[int, str]()
    attacked = False
    for row in run.rows:
        tallies.setdefault((row.estimator, row.at), GroupTally()).add(row)
        labelled = labelled or row.label is not None
        attacked = attacked or GRID_STEP in (row.details or {})
        if len(examples) < _EXAMPLES:
            examples.setdefault(row.predicted, row.sample_id)
    summaries = {(group.key.estimator, group.key.at): group for group in (summarise(run.frame, run.quantities) if tallies else ())}
    if not summaries:
        raise NothingLeftError(str(run.path), "has no results to report", "audit at least one sample")
    keys = run.chosen(summaries, choice.estimators, choice.levels)
    if not keys:
        raise NothingLeftError(str(run.path), "has none of these estimators at these noise levels", "name others")
    groups = tuple(summaries[key] for key in keys)
    there = {group.key.quantity for group in groups}
    asked = [name for wanted in choice.estimators for name in dict.fromkeys(key[0] for key in keys) if matches(name, wanted)]
    shown = tuple(dict.fromkeys(asked)) or (_principal(groups),)
    biases, flagged = [], []
    for key in keys:
        if key[0] in shown:
            quantity = quantity_of(summaries[key].key.quantity, run.quantities)
            columns = run.frame[summaries[key].key]
            worst = _worst(columns, quantity, choice)
            flagged.append(replace(worst, samples=worst.samples[: min(choice.most, max(worst.beyond, _FEW))]))
            by: Literal["label", "predicted"] = "label" if labelled else "predicted"
            biases.append(class_bias(columns, by=by, class_names=run.class_names, quantity=quantity))
    return Content(
        run=run,
        groups=groups,
        tallies={key: tallies[key] for key in keys},
        shown=shown,
        biases=tuple(biases),
        flagged=tuple(flagged),
        agreements=agreements(run, choice.estimators, choice.levels) if comparable([group.key for group in groups]) else (),
        examples=tuple(examples.values()),
        whole=len(keys) == len(summaries),
        scores=_scores(run, choice) if labelled and there.intersection(RADII) else (),
        certified=tuple(of_runs([run], choice.estimators, choice.levels)) if labelled and CERTIFIED.name in there else (),
        losses=losses(run, choice.estimators, choice.levels) if LOSS.name in there else (),
        curves=_curves(run, choice, (at for _, at in keys), attacked=attacked) if labelled else None,
    )


def _curves(run: Run, choice: Choice, levels: Iterable[NoiseLevel], *, attacked: bool) -> Curves | None:
    """The curves of a run with attacks on a grid, linear corruption or many levels of Gaussian noise; of noise alone, only one that ends
    by its rule."""
    kinds = {entry["name"]: entry["kind"] for entry in run.info["spec"].get("noise", ())}
    counted = Counter(kinds.get(at.noise) for at in set(levels))
    if not (attacked or counted[LINEAR] or counted[GAUSSIAN] >= MANY_LEVELS):
        return None
    try:
        found = curves_of(run, estimators=choice.estimators, levels=choice.levels)
    except RunError:  # none of these results
        return None
    noise = found.curves.get(CurveKind.NOISE)
    if noise is not None and (noise.summary.value is None or noise.summary.relation is not Relation.IS) and len(found.curves) == 1:
        return None
    return found


def _scores(run: Run, choice: Choice) -> tuple[Scores, ...]:
    try:
        return tuple(scores_of(one) for one in radii_of(run, choice.estimators, choice.levels))
    except NothingLeftError:  # no labelled image has a finite radius
        return ()


def _principal(groups: Sequence[GroupSummary]) -> str:
    """The estimator that answers the question: the first of a probability with intervals, else the first."""
    probable = [group for group in groups if group.unit == "probability" and group.with_interval]
    return (probable or list(groups))[0].key.estimator


def _worst(columns: Columns, quantity: Quantity, choice: Choice) -> Flagged:
    """All samples, the worst first, and how many are beyond the threshold."""
    threshold = usual_threshold(quantity) if choice.threshold is None else choice.threshold
    if choice.threshold is not None and not quantity.low <= threshold <= quantity.high:
        reach = f"{quantity.low:g} to {quantity.high:g}"
        raise RobauditError(f"--threshold {threshold:g}", f"{quantity.name} goes from {reach}", "name a value inside, or other --estimator")
    return flag(columns, below=threshold, bottom=len(columns), quantity=quantity)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The part of a choice that a run has, and its errors for the rest; ``some``: whether anything is left."""

    run: Run
    choice: Choice
    estimators: Mapping[str, RunError]
    levels: Mapping[LevelChoice, RunError]
    some: bool


def gather_all(runs: Sequence[Run], choice: Choice) -> tuple[list[Content], list[str]]:
    """Read several runs, of each those of the named estimators and noise levels that it has.

    Args:
        runs: at least one.
        choice: of each.

    Returns:
        What is said about each run that has some of them, and a line for all that is missing somewhere.

    Raises:
        RunError: no run has one of them.
        NothingLeftError, RobauditError: as :func:`gather`.
    """
    if not choice.estimators and not choice.levels:
        return [gather(run, choice) for run in runs], []
    asked = [_asked(run, choice) for run in runs]
    _refuse_unknown(choice.estimators, [one.estimators for one in asked])
    _refuse_unknown(choice.levels.parts, [one.levels for one in asked])
    if not any(one.some for one in asked):
        raise NothingLeftError("robaudit report", "no run has these estimators at these noise levels", "name others")
    return [gather(one.run, one.choice) for one in asked if one.some], [note for one in asked for note in _notes(one)]


def _notes(one: _Asked) -> list[str]:
    lacks = [str(error) for error in (*one.estimators.values(), *one.levels.values())]
    if one.some:
        return lacks
    return [f"left out: {text}" for text in lacks or [f"{one.run.path}: has none of these estimators at these noise levels"]]


def _asked(run: Run, choice: Choice) -> _Asked:
    keys = list(dict.fromkeys((row.estimator, row.at) for row in run.rows))
    no_name = _missing(choice.estimators, lambda name: run.chosen(keys, [name], []))
    no_level = _missing(choice.levels.parts, lambda part: run.chosen(keys, [], part))
    estimators = [name for name in choice.estimators if name not in no_name]
    levels = LevelChoice.joined(part for part in choice.levels.parts if part not in no_level)
    some = bool(estimators or not choice.estimators) and bool(levels or not choice.levels)
    some = some and not _missing([levels], lambda level: run.chosen(keys, [], level)) and bool(run.chosen(keys, estimators, levels))
    return _Asked(run, replace(choice, estimators=estimators, levels=levels), no_name, no_level, some)


def _missing(asked: Sequence[T], choose: Callable[[T], object]) -> dict[T, RunError]:
    """What the run lacks, with its error for each."""
    missing = {}
    for one in asked:
        try:
            choose(one)
        except RunError as error:
            missing[one] = error
    return missing


def _refuse_unknown(asked: Sequence[T], missing: Sequence[Mapping[T, RunError]]) -> None:
    for one in asked:
        if all(one in lacks for lacks in missing):
            raise missing[0][one]
