"""How robust is each class: what of a bias report goes into the picture?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from robaudit.pictures.groups import one_of
from robaudit.store.run import Run
from robaudit.summary.bias import class_bias
from robaudit.summary.bias_result import ClassBias, ClassStats
from robaudit.summary.columns import Columns
from robaudit.summary.estimates import Mean, mean_of
from robaudit.summary.groups import QuantityLike, quantity_of

ALL, WORST, BEST = 25, 20, 5


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of one estimator at one noise level.

    Attributes:
        bias: the whole report.
        quantity: what was measured.
        first, last: the classes that are shown, the worst first: all of them in ``first``, or the worst and the best.
        between: how many are not shown.
        overall: the mean over all images that have a class.
        others: other groups of the run.
    """

    bias: ClassBias
    quantity: QuantityLike
    first: tuple[ClassStats, ...]
    last: tuple[ClassStats, ...]
    between: int
    overall: Mean
    others: int


def classes_of(run: Run, estimators: Sequence[str] = (), sigmas: Sequence[float] = ()) -> Classes:
    """The classes by label, or by prediction where the data has no labels.

    Raises:
        RunError: the run has no such estimator or sigma.
        NothingLeftError: there is no finite value.
    """
    rows, others = one_of(run, estimators, sigmas)
    quantity = quantity_of(rows[0].quantity, run.quantities)
    labelled = any(row.label is not None for row in rows)
    bias = class_bias(rows, by="label" if labelled else "predicted", class_names=run.class_names, quantity=quantity)
    ordered = sorted(bias.classes, key=lambda one: one.mean.value if bias.higher_is_better else -one.mean.value)
    many = len(ordered) > ALL
    members = Columns.of(row for row in rows if (row.label if labelled else row.predicted) is not None)
    return Classes(
        bias=bias,
        quantity=quantity,
        first=tuple(ordered[:WORST] if many else ordered),
        last=tuple(ordered[-BEST:] if many else ()),
        between=max(0, len(ordered) - WORST - BEST) if many else 0,
        overall=mean_of(members, quantity),
        others=others,
    )
