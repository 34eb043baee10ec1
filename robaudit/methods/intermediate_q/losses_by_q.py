"""Losses between the average and the worst case: norms by their order q, up to the attack, for the
mean over images and for the worst images."""

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
"""Images listed as the worst."""
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
        """The name of its estimator."""
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
            whole interval of a norm is above them (:func:`largest_known_loss`). There the attacks
            failed.
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
    groups = _loss_groups(run, estimators, levels)
    finite = {key: columns for key, columns in groups.items() if len(columns)}
    # A run without losses needs no summary, which takes a while.
    summaries = {group.key: group for group in summary_of(run)} if finite else {}
    at_levels = []
    for at in from_weak_to_strong(key.at for key in finite):
        by_name = {key.estimator: columns for key, columns in finite.items() if key.at == at}
        orders = _orders(list(by_name))
        if orders:
            at_levels.append(_losses(by_name, summaries, orders, most))
    return tuple(at_levels)


def _loss_groups(
    run: Run, estimators: Sequence[str], levels: LevelChoice | Sequence[float]
) -> dict[GroupKey, Columns]:
    """The finite losses of a run, by result and noise level."""
    return {
        columns.key: columns.finite
        for columns in run.groups(estimators, levels).values()
        if columns.key.quantity == LOSS.name
    }


def _orders(names: Sequence[str]) -> dict[str, list[tuple[float, str]]]:
    """The results of finite order by estimator: (q, name of the result), by ascending q."""
    orders = {}
    for (estimator, part), points in series(names).items():
        if part is not PartName.Q:
            continue
        finite = [(q, name) for q, name in points if 0 < q < math.inf]
        if finite:
            orders[estimator] = finite
    return orders


def _losses(
    columns: Mapping[str, Columns],
    summaries: Mapping[GroupKey, GroupSummary],
    orders: Mapping[str, Sequence[tuple[float, str]]],
    most: int,
) -> Losses:
    """The losses at one noise level, from its results by name; ``orders``: from :func:`_orders`."""
    parts = {name: ResultName.parse(name).part for name in columns}
    # A loss without an order is the maximum, as of an attack.
    limits = [name for name, part in parts.items() if part is None or part.number == math.inf]
    # The largest q is nearest to the worst case; max takes the first estimator if several have it.
    ranking_estimator = max(orders, key=lambda estimator: orders[estimator][-1][0])
    _, ranking_name = orders[ranking_estimator][-1]
    ranking = columns[ranking_name]
    worst = flag(ranking, below=usual_threshold(LOSS), bottom=most, quantity=LOSS).samples
    norms = [columns[name] for points in orders.values() for _, name in points]
    attacked, beaten = _attacks([columns[name] for name in limits], norms, len(ranking.ids))

    def result(q: float, name: str) -> LossResult:
        rows = columns[name]
        values = dict(zip(rows.names, rows.values.tolist(), strict=True))
        # For rows without an upper end tables print "at least" the lower end.
        unbounded = rows.take(rows.is_open_above)
        lowers = dict(zip(unbounded.names, unbounded.lowers.tolist(), strict=True))
        return LossResult(
            q,
            summaries[rows.key],
            worst=tuple(values.get(sample.id) for sample in worst),
            at_least=tuple(lowers.get(sample.id) for sample in worst),
        )

    curves = {
        estimator: tuple(result(q, name) for q, name in points)
        for estimator, points in orders.items()
    }
    return Losses(
        at=ranking.key.at,
        curves=curves,
        attacks=tuple(result(math.inf, name) for name in limits),
        ranking=curves[ranking_estimator],
        worst=worst,
        attacked=attacked,
        beaten=beaten,
    )


def _attacks(limits: Sequence[Columns], norms: Sequence[Columns], images: int) -> tuple[int, int]:
    """Compare attacks with the norms of the same images.

    Args:
        limits: the results of attacks.
        norms: results of finite order.
        images: number of images of the run.

    Returns:
        The images with a value of an attack and of a norm, and how many of them show a larger loss
        than all attacks.
    """
    largest = np.full(images, -np.inf)  # of all attacks; -inf without one
    for limit in limits:
        np.maximum.at(largest, limit.place, limit.values)
    attacked = np.zeros(images, dtype=np.bool_)
    beaten = np.zeros(images, dtype=np.bool_)
    for norm in norms:
        has_attack = largest[norm.place] > -np.inf
        attacked[norm.place[has_attack]] = True
        larger = largest_known_loss(norm) > largest[norm.place] * (1 + ROUNDING)
        beaten[norm.place[has_attack & larger]] = True
    return int(attacked.sum()), int(beaten.sum())


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
    base_groups = _loss_groups(base, estimators, levels)
    new_groups = _loss_groups(new, estimators, levels)
    changes: dict[GroupKey, PairedDifference] = {}
    for key, base_columns in base_groups.items():
        if key not in new_groups:
            continue
        names = common_names([base_columns, new_groups[key]])
        if not names:
            continue
        base_common = base_columns.of_images(names)
        new_common = new_groups[key].of_images(names)
        change = _paired_t(new_common.values - base_common.values)
        if base_common.open_above or new_common.open_above:
            change = change.without_interval()
        changes[key] = change
    return changes


def _paired_t(changes: Floats) -> PairedDifference:
    """The mean of paired differences; without an interval for a single pair."""
    from scipy.special import stdtr

    n = len(changes)
    mean = float(changes.mean())
    if n < 2:
        return PairedDifference(Estimate(mean), None, n)
    error = float(changes.std(ddof=1)) / math.sqrt(n)
    # If all pairs differ by the same, they differ by nothing, or certainly.
    p = float(mean == 0.0)
    if error > 0.0:
        p = float(2.0 * stdtr(n - 1, -abs(mean) / error))
    bounds = mean_interval(changes, -math.inf, math.inf)
    return PairedDifference(Estimate.population(mean, bounds, "Student's t"), p, n)


def largest_known_loss(columns: Columns) -> Floats:
    """Losses that an attack should reach (n,): the largest that the estimator met, or the lower end
    of the norm if that is larger."""
    # A row without a lower end stands for itself; one without a highest loss for its norm.
    norm = np.where(np.isnan(columns.lower), columns.values, columns.lower)
    highest = columns.highest
    met = np.where(np.isnan(highest), norm, highest)
    # A lower bound is a loss that was met.
    met = np.where(columns.of_kind(IntervalKind.LOWER_BOUND), columns.values, met)
    return np.maximum(norm, met)
