"""Are some classes less robust than others, or is it chance?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypedDict

import numpy as np

from robaudit.errors import NothingLeftError, RobauditError
from robaudit.numerics.intervals import mean_interval
from robaudit.rows import Row
from robaudit.summary.bias_result import By, ClassBias, ClassStats, Gap
from robaudit.summary.columns import Columns
from robaudit.summary.estimates import mean_of, quantile_of, share
from robaudit.summary.groups import QuantityLike, one_group, quantity_of, with_values
from robaudit.summary.permutation import Null, holm, permutation_null
from robaudit.summary.verdict import verdict_on

__all__ = ["By", "ClassBias", "ClassStats", "Gap", "class_bias"]


def class_bias(
    rows: Sequence[Row],
    *,
    by: By = "label",
    threshold: float = 0.9,
    class_names: Sequence[str] | None = None,
    quantity: QuantityLike | None = None,
    permutations: int = 2000,
    seed: int = 0,
    alpha: float = 0.05,
) -> ClassBias:
    """Compare the classes of one group of rows.

    The p-values and the null of the gap come from one set of shuffles of the class labels (:mod:`robaudit.summary.permutation`).
    They test whether the class says *anything* about the value: a class that differs in spread alone may be called different.

    Args:
        rows: of one (estimator, sigma).
        by: classes are the labels, or what the model predicts on the clean image.
        threshold: for the share below.
        class_names: by class index.
        quantity: what the values are; ours are known without it.
        permutations: shuffles, at least 100.
        seed: of the shuffles.
        alpha: 1 - confidence of the intervals; level of the decisions.

    Raises:
        NothingLeftError: no row has a class and a finite value.
        RobauditError: a threshold that is no number, or too few permutations.
        ValueError: rows of several groups.
    """
    key = one_group(rows, "bias-report")
    quantity = quantity or quantity_of(key.quantity, None)
    if not math.isfinite(threshold):
        raise RobauditError("threshold", f"{threshold} is not a number to compare with", "for example 0.9")
    if permutations < 100:
        raise RobauditError("permutations", f"{permutations} are too few for a p-value", "at least 100, better 2000")
    members: dict[int, list[Row]] = {}
    for row in with_values(rows, "bias-report"):
        index = row.label if by == "label" else row.predicted
        if index is not None:
            members.setdefault(index, []).append(row)
    if not members:
        raise NothingLeftError("bias-report", f"none of the {len(rows)} samples has a label", "use --by predicted, or data with labels")
    tested = {index: group for index, group in sorted(members.items()) if len(group) >= 2}
    null = None
    tests: dict[int, _Tests] = {}
    if len(tested) >= 2:
        pooled = np.array([row.value for group in tested.values() for row in group])
        null = permutation_null(pooled, np.array([len(group) for group in tested.values()]), permutations, seed)
        tests = _tests(tested, null, quantity, alpha)
    classes = tuple(
        replace(
            _class_stats(members[index], threshold, quantity, alpha), index=index, name=_name(index, class_names), **tests.get(index, {})
        )
        for index in sorted(members)
    )
    gap = None if null is None else _gap(classes, null, quantity, permutations)
    verdict, explanation = verdict_on(classes, gap, alpha)
    left_out = len(rows) - sum(map(len, members.values()))
    return ClassBias(key, quantity.unit, quantity.higher_is_better, by, threshold, classes, gap, left_out, alpha, verdict, explanation)


class _Tests(TypedDict, total=False):
    """The fields of :class:`ClassStats` that only a tested class has."""

    simultaneous_lower: float
    simultaneous_upper: float
    p_value: float
    p_holm: float
    differs: Literal["lower", "higher", "no"]


def _tests(tested: Mapping[int, Sequence[Row]], null: Null, quantity: QuantityLike, alpha: float) -> dict[int, _Tests]:
    """Each tested class: simultaneous interval, p-values and Holm's decision."""
    values = [np.array([row.value for row in group]) for group in tested.values()]
    overall = float(np.concatenate(values).mean())
    tests: dict[int, _Tests] = {}
    for index, x, p, adjusted in zip(tested, values, null.p_values, holm(null.p_values), strict=True):
        lower, upper = mean_interval(x, quantity.low, quantity.high, 1.0 - alpha / len(tested))
        tests[index] = {
            "simultaneous_lower": lower,
            "simultaneous_upper": upper,
            "p_value": float(p),
            "p_holm": float(adjusted),
            "differs": "no" if adjusted > alpha else "lower" if x.mean() < overall else "higher",
        }
    return tests


def _class_stats(rows: Sequence[Row], threshold: float, quantity: QuantityLike, alpha: float) -> ClassStats:
    """What describes one class by itself; it has no index yet."""
    columns = Columns.of(rows)
    q25, median, q75 = (quantile_of(columns, q, quantity, 1.0 - alpha) for q in (0.25, 0.5, 0.75))
    mean, below = mean_of(columns, quantity, 1.0 - alpha), int((columns.values < threshold).sum())
    return ClassStats(-1, None, len(rows), mean, q25, median, q75, share(below, len(rows), 1.0 - alpha))


def _name(index: int, names: Sequence[str] | None) -> str | None:
    return names[index] if names is not None and 0 <= index < len(names) else None


def _gap(classes: Sequence[ClassStats], null: Null, quantity: QuantityLike, permutations: int) -> Gap:
    tested = [one for one in classes if one.p_value is not None]
    lowest = min(tested, key=lambda one: one.mean.value)
    highest = max(tested, key=lambda one: one.mean.value)
    least, most = (lowest, highest) if quantity.higher_is_better else (highest, lowest)
    lowers = [one.simultaneous_lower for one in tested if one.simultaneous_lower is not None]
    uppers = [one.simultaneous_upper for one in tested if one.simultaneous_upper is not None]
    return Gap(
        least=least.index,
        most=most.index,
        value=highest.mean.value - lowest.mean.value,
        lower=max(0.0, max(lowers) - min(uppers)),
        upper=max(uppers) - min(lowers),
        p_value=null.gap_p_value,
        null_mean=null.gap_mean,
        null_q95=null.gap_q95,
        permutations=permutations,
    )
