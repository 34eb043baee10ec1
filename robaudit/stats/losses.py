"""Losses between the average and the worst case: by the order q of their norm, up to the attack, for the mean over images and the worst."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from robaudit.levels import LevelChoice, NoiseLevel
from robaudit.names import PartName, ResultName, series
from robaudit.quantities import LOSS, Quantity
from robaudit.rows import Row
from robaudit.stats.agreement import Results
from robaudit.stats.attacks import ROUNDING, not_missed
from robaudit.stats.flags import Flag, flag, usual_threshold
from robaudit.stats.groups import GroupKey, quantity_of
from robaudit.stats.summary import Columns, Mean, mean_of

MOST_WORST = 6


@dataclass(frozen=True, slots=True)
class LossResult:
    """One result at one noise level.

    Attributes:
        q: the order; infinite for the maximum, which an attack looks for.
        name: of the result.
        images: with a finite value; ``left_out``: without.
        with_interval: how many have an interval of their own; ``approximate``: how many of these cover sampling only.
        mean: over the images.
        worst: the values of :attr:`Losses.worst`; None where an image has none.
    """

    q: float
    name: str
    images: int
    left_out: int
    with_interval: int
    approximate: int
    mean: Mean
    worst: tuple[float | None, ...]

    @property
    def estimator(self) -> str:
        """The label of its estimator."""
        return ResultName.parse(self.name).estimator


@dataclass(frozen=True, slots=True)
class LossCurve:
    """The results of one estimator at one noise level, by ascending finite q."""

    estimator: str
    results: tuple[LossResult, ...]


@dataclass(frozen=True, slots=True)
class Losses:
    """The losses at one noise level.

    Attributes:
        at: the noise level.
        quantity: what was measured: nats, lower is better.
        curves: one for each estimator with results by q, in the run's order; at least one.
        attacks: the results for the maximum: the limits of the curves.
        ranked_by: the name of the result that ranks the images: at the largest q, of the first curve that has it.
        worst: the images with the highest losses by it, as :func:`robaudit.stats.flags.flag` lists them.
        attacked: images with a value of an attack and one by q; ``beaten``: those of them where a norm's sampler met a larger loss than all
            attacks, or the whole interval of a norm is above them (:func:`robaudit.stats.attacks.not_missed`): there the attacks failed.
    """

    at: NoiseLevel
    quantity: Quantity
    curves: tuple[LossCurve, ...]
    attacks: tuple[LossResult, ...]
    ranked_by: str
    worst: tuple[Flag, ...]
    attacked: int
    beaten: int

    @property
    def ranking(self) -> LossCurve:
        """The curve that has the ranking result."""
        return next(curve for curve in self.curves if any(one.name == self.ranked_by for one in curve.results))

    @property
    def results(self) -> tuple[LossResult, ...]:
        """All of them: curve by curve, then the attacks."""
        return (*(one for curve in self.curves for one in curve.results), *self.attacks)


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of the results at one noise level: by q and estimator, and those for the maximum."""

    curves: Mapping[str, Sequence[tuple[float, str]]]
    attacks: Sequence[str]
    ranking: str

    @property
    def by_q(self) -> frozenset[str]:
        return frozenset(name for points in self.curves.values() for _, name in points)


def losses(
    run: Results, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = (), most: int = MOST_WORST
) -> tuple[Losses, ...]:
    """The losses at each noise level that has some by q, the levels of a noise from weak to strong; empty where there are none.

    A loss without an order is the maximum (:data:`robaudit.quantities.LOSS`), and so is one of infinite order. Rows are read three times;
    what is kept of each is a few numbers.

    Args:
        run: a finished run.
        estimators, levels: only these.
        most: how many images are listed as the worst.

    Raises:
        RunError: the run has no such estimator or noise level.
    """
    columns: dict[GroupKey, Columns] = {}
    for row in run.rows:
        one = columns.setdefault(GroupKey.of(row), Columns())
        if row.quantity == LOSS.name:
            one.add(row)
    wanted = set(run.chosen([(key.estimator, key.at) for key in columns], estimators, levels))
    kept = {key: one for key, one in columns.items() if key.quantity == LOSS.name and (key.estimator, key.at) in wanted and len(one)}
    places = {at: names for at in _ordered(kept) if (names := _names([key.estimator for key in kept if key.at == at])) is not None}
    if not places:
        return ()
    ranked, attacks = _ranked(run, places, most)
    quantity = quantity_of(LOSS.name, {LOSS.name: LOSS, **run.quantities})
    worst = {at: flag(rows, below=usual_threshold(quantity), bottom=most, quantity=quantity).samples for at, rows in ranked.items() if rows}
    values, attacked, beaten = _followed(run, places, worst, attacks)

    def result(at: NoiseLevel, q: float, name: str) -> LossResult:
        one, found = kept[GroupKey(name, at, LOSS.name)], values.get((at, name), {})
        mine = tuple(found.get(sample.id) for sample in worst[at])
        return LossResult(q, name, len(one), one.not_finite, one.bounded, one.approximate, mean_of(one, quantity), mine)

    return tuple(
        Losses(
            at=at,
            quantity=quantity,
            curves=tuple(LossCurve(label, tuple(result(at, *point) for point in points)) for label, points in names.curves.items()),
            attacks=tuple(result(at, math.inf, name) for name in names.attacks),
            ranked_by=names.ranking,
            worst=worst[at],
            attacked=len(attacked[at]),
            beaten=len(beaten[at]),
        )
        for at, names in places.items()
    )


def _ordered(keys: Mapping[GroupKey, Columns]) -> list[NoiseLevel]:
    """The noise levels: noises in the run's order, each from weak to strong."""
    levels = list(dict.fromkeys(key.at for key in keys))
    labels = list(dict.fromkeys(at.noise for at in levels))
    return sorted(levels, key=lambda at: (labels.index(at.noise), at.strength))


def _names(names: Sequence[str]) -> _Names | None:
    """The names sorted; None where no result has a finite q."""
    curves = {
        label: finite
        for (label, part), points in series(names).items()
        if part is PartName.Q and (finite := [(q, name) for q, name in points if 0 < q < math.inf])
    }
    if not curves:
        return None
    largest = max(points[-1][0] for points in curves.values())
    ranking = next(points[-1][1] for points in curves.values() if points[-1][0] == largest)
    parts = {name: ResultName.parse(name).part for name in names}
    return _Names(curves, [name for name, part in parts.items() if part is None or part.number == math.inf], ranking)


def _ranked(
    run: Results, places: Mapping[NoiseLevel, _Names], most: int
) -> tuple[dict[NoiseLevel, list[Row]], dict[NoiseLevel, dict[str, float]]]:
    """The rows with the highest finite values of the ranking result, in their order where they are equal, and the highest value of an
    attack on each image."""
    ranked: dict[NoiseLevel, list[Row]] = {at: [] for at in places}
    attacks: dict[NoiseLevel, dict[str, float]] = {at: {} for at in places}
    for row in run.rows:
        names = places.get(row.at)
        if names is None or row.quantity != LOSS.name or not math.isfinite(row.value):
            continue
        if row.estimator == names.ranking:
            rows = ranked[row.at]
            rows.append(row)
            if len(rows) > 8 * most + 64:
                rows[:] = sorted(rows, key=lambda one: -one.value)[:most]
        elif row.estimator in names.attacks:
            found = attacks[row.at]
            found[row.sample_id] = max(row.value, found.get(row.sample_id, -math.inf))
    return ranked, attacks


def _followed(
    run: Results,
    places: Mapping[NoiseLevel, _Names],
    worst: Mapping[NoiseLevel, Sequence[Flag]],
    attacks: Mapping[NoiseLevel, Mapping[str, float]],
) -> tuple[dict[tuple[NoiseLevel, str], dict[str, float]], dict[NoiseLevel, set[str]], dict[NoiseLevel, set[str]]]:
    """The values of the worst images by result; which images were attacked; where the attack was beaten."""
    ids = {at: {sample.id for sample in samples} for at, samples in worst.items()}
    by_q = {at: names.by_q for at, names in places.items()}
    values: dict[tuple[NoiseLevel, str], dict[str, float]] = {}
    attacked: dict[NoiseLevel, set[str]] = {at: set() for at in places}
    beaten: dict[NoiseLevel, set[str]] = {at: set() for at in places}
    for row in run.rows:
        at = row.at
        if at not in places or row.quantity != LOSS.name or not math.isfinite(row.value):
            continue
        if row.sample_id in ids[at]:
            values.setdefault((at, row.estimator), {})[row.sample_id] = row.value
        if row.estimator in by_q[at] and (found := attacks[at].get(row.sample_id)) is not None:
            attacked[at].add(row.sample_id)
            if not_missed(row) > found * (1 + ROUNDING):
                beaten[at].add(row.sample_id)
    return values, attacked, beaten
