"""Losses between the average and the worst case: by the order q of their norm, up to the attack,
for the mean over images and the worst."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from robaudit.estimates import Estimate
from robaudit.levels import LevelChoice, NoiseLevel, from_weak_to_strong
from robaudit.names import PartName, ResultName, series
from robaudit.numerics.image_intervals import Floats
from robaudit.numerics.intervals import mean_interval
from robaudit.quantities import LOSS, IntervalKind
from robaudit.runs.groups import GroupKey
from robaudit.runs.run import Run
from robaudit.runs.table import Columns, common_names
from robaudit.stats.bootstrap import PairedDifference
from robaudit.stats.flags import Flag, flag, usual_threshold
from robaudit.stats.summary import GroupSummary, Mean, summary_of

MOST_WORST = 6
ROUNDING = 1e-4
"""Relative tolerance of losses: more than passes with and without gradients differ by."""


@dataclass(frozen=True, slots=True)
class LossResult:
    """One result at one noise level.

    Attributes:
        q: the order; infinite for the maximum, which an attack looks for.
        summary: over the images.
        worst: the values of :attr:`Losses.worst`; None where an image has none.
        at_least: where such a value is an estimate without an upper end, its lower end; else None.
    """

    q: float
    summary: GroupSummary
    worst: tuple[float | None, ...]
    at_least: tuple[float | None, ...]

    @property
    def name(self) -> str:
        """The name of the result."""
        return self.summary.key.estimator

    @property
    def estimator(self) -> str:
        """The label of its estimator."""
        return ResultName.parse(self.name).estimator

    @property
    def mean(self) -> Mean:
        """Over the images."""
        return self.summary.mean


@dataclass(frozen=True, slots=True)
class Losses:
    """The losses at one noise level.

    Attributes:
        at: the noise level.
        curves: the results by ascending finite q, by estimator, in the run's order; at least one.
        attacks: the results for the maximum: the limits of the curves.
        ranking: the curve whose largest q ranks the images: the first with the largest of all.
        worst: the images with the highest losses by it, as :func:`robaudit.stats.flags.flag` lists
            them.
        attacked: images with a value of an attack and a value by q.
        beaten: of these, images where a norm's sampler met a larger loss than all attacks, or the
            whole interval of a norm is above them (:func:`not_missed`): there the attacks failed.
    """

    at: NoiseLevel
    curves: Mapping[str, tuple[LossResult, ...]]
    attacks: tuple[LossResult, ...]
    ranking: tuple[LossResult, ...]
    worst: tuple[Flag, ...]
    attacked: int
    beaten: int

    @property
    def results(self) -> tuple[LossResult, ...]:
        """All results: curve by curve, then the attacks."""
        return (*(result for curve in self.curves.values() for result in curve), *self.attacks)


def losses(
    run: Run,
    estimators: Sequence[str] = (),
    levels: LevelChoice | Sequence[float] = (),
    most: int = MOST_WORST,
) -> tuple[Losses, ...]:
    """The losses at each noise level that has losses by q, the levels of a noise from weak to
    strong.

    A loss without an order is the maximum (:data:`robaudit.quantities.LOSS`), and so is a loss of
    infinite order.

    Args:
        run: a finished run.
        estimators, levels: only these.
        most: how many images are listed as the worst.

    Raises:
        RunError: the run has no such estimator or noise level.
    """
    chosen = (
        columns.finite
        for columns in run.groups(estimators, levels).values()
        if columns.key.quantity == LOSS.name
    )
    finite = {columns.key: columns for columns in chosen if len(columns)}
    summaries = {group.key: group for group in summary_of(run)} if finite else {}
    at_levels = []
    for at in from_weak_to_strong(key.at for key in finite):
        by_name = {key.estimator: columns for key, columns in finite.items() if key.at == at}
        orders = _orders(list(by_name))
        if orders:
            at_levels.append(_losses(by_name, summaries, orders, most))
    return tuple(at_levels)


def _orders(names: Sequence[str]) -> dict[str, list[tuple[float, str]]]:
    """The results of finite order by estimator, with their q."""
    of_q = {label: points for (label, part), points in series(names).items() if part is PartName.Q}
    finite = {
        label: [(q, name) for q, name in points if 0 < q < math.inf]
        for label, points in of_q.items()
    }
    return {label: points for label, points in finite.items() if points}


def _losses(
    columns: Mapping[str, Columns],
    summaries: Mapping[GroupKey, GroupSummary],
    orders: Mapping[str, Sequence[tuple[float, str]]],
    most: int,
) -> Losses:
    """The losses at one noise level, from its results by name; ``orders``: from :func:`_orders`."""
    parts = {name: ResultName.parse(name).part for name in columns}
    limits = [name for name, part in parts.items() if part is None or part.number == math.inf]
    ranks = max(orders, key=lambda label: orders[label][-1][0])
    ranking = columns[orders[ranks][-1][1]]
    worst = flag(ranking, below=usual_threshold(LOSS), bottom=most, quantity=LOSS).samples
    attacks = np.full(len(ranking.ids), -np.inf)
    for name in limits:
        np.maximum.at(attacks, columns[name].place, columns[name].values)
    attacked, beaten = (np.zeros(len(ranking.ids), dtype=np.bool_) for _ in range(2))
    for norm in (columns[name] for points in orders.values() for _, name in points):
        shared = attacks[norm.place] > -np.inf
        attacked[norm.place[shared]] = True
        beaten[norm.place[shared & (not_missed(norm) > attacks[norm.place] * (1 + ROUNDING))]] = (
            True
        )

    def result(q: float, name: str) -> LossResult:
        rows = columns[name]
        values = dict(zip(rows.names, rows.values.tolist(), strict=True))
        open_ = rows.take(rows.is_open_above)
        lowers = dict(zip(open_.names, open_.lowers.tolist(), strict=True))
        return LossResult(
            q,
            summaries[rows.key],
            worst=tuple(values.get(sample.id) for sample in worst),
            at_least=tuple(lowers.get(sample.id) for sample in worst),
        )

    curves = {label: tuple(result(*point) for point in points) for label, points in orders.items()}
    return Losses(
        at=ranking.key.at,
        curves=curves,
        attacks=tuple(result(math.inf, name) for name in limits),
        ranking=curves[ranks],
        worst=worst,
        attacked=int(attacked.sum()),
        beaten=int(beaten.sum()),
    )


def loss_changes(
    base: Run, new: Run, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()
) -> dict[GroupKey, PairedDifference]:
    """The differences of the mean losses of two runs, new - base, on the images with a finite value
    in both.

    Intervals and p-values are by Student's t for pairs, like the interval of a run's mean: losses
    have no bound, so no interval is free of assumptions. A difference of estimates without an upper
    end has neither.

    Raises:
        RunError: a run has no such estimator or noise level.
    """
    sides = [
        {
            columns.key: columns.finite
            for columns in run.groups(estimators, levels).values()
            if columns.key.quantity == LOSS.name
        }
        for run in (base, new)
    ]
    changes: dict[GroupKey, PairedDifference] = {}
    for key in sides[0]:
        if key in sides[1] and (names := common_names([side[key] for side in sides])):
            before, now = (side[key].of_images(names) for side in sides)
            change = _paired_t(now.values - before.values)
            known = not before.open_above and not now.open_above
            changes[key] = change if known else change.without_interval()
    return changes


def _paired_t(changes: Floats) -> PairedDifference:
    """The mean of paired differences; without an interval for a single pair."""
    from scipy.special import stdtr

    n = len(changes)
    mean = float(changes.mean())
    if n < 2:
        return PairedDifference(Estimate(mean), None, n)
    error = float(changes.std(ddof=1)) / math.sqrt(n)
    p = float(2.0 * stdtr(n - 1, -abs(mean) / error)) if error > 0.0 else float(mean == 0.0)
    bounds = mean_interval(changes, -math.inf, math.inf)
    return PairedDifference(Estimate.population(mean, bounds, "Student's t"), p, n)


def not_missed(columns: Columns) -> Floats:
    """Losses that an attack should reach (n,): the largest that the estimator met, or the lower end
    of the norm if that is larger."""
    norm = np.where(np.isnan(columns.lower), columns.values, columns.lower)
    met = columns.highest
    met = np.where(
        columns.of_kind(IntervalKind.LOWER_BOUND),
        columns.values,
        np.where(np.isnan(met), norm, met),
    )
    return np.maximum(norm, met)
