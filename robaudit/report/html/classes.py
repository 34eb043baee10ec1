"""Which classes does a report list, where a model may have a thousand?"""

from __future__ import annotations

from dataclasses import dataclass

from robaudit.report.html.content import Content
from robaudit.report.html.tables import Table, class_table
from robaudit.report.tables import APPROXIMATE
from robaudit.summary.bias import ClassBias
from robaudit.text import count

_ALL, _WORST, _BEST = 30, 20, 5
WORDS = {"real": "a real difference", "noise": "chance may explain it", "untested": "not tested"}


@dataclass(frozen=True, slots=True)
class ClassView:
    """The classes of one estimator at one noise level.

    Attributes:
        bias: all of them, tested.
        title: estimator and noise level.
        table: all classes, the weakest first; of more than 30 the weakest 20.
        best, rest: the strongest 5, and those between; None where the table has all.
        notes: lines below.
    """

    bias: ClassBias
    title: str
    table: Table
    best: Table | None
    rest: Table | None
    notes: tuple[str, ...]


def class_view(content: Content, bias: ClassBias) -> ClassView:
    """The tables of one estimator and noise level."""
    quantity, sign = content.quantity(bias.key.quantity), 1.0 if bias.higher_is_better else -1.0
    ordered = sorted(bias.classes, key=lambda one: sign * one.mean.value)
    title = f"{bias.key.estimator}, sigma {content.sigmas[bias.key.sigma]}"
    by = "label" if bias.by == "label" else "predicted class"
    if len(ordered) <= _ALL:
        return ClassView(bias, title, class_table(bias, quantity, ordered, f"By {by}, {title}"), None, None, _notes(bias))
    worst, rest, best = ordered[:_WORST], ordered[_WORST:-_BEST], ordered[-_BEST:]
    return ClassView(
        bias,
        title,
        class_table(bias, quantity, worst, f"The {len(worst)} weakest of {len(ordered):,} classes, {title}"),
        class_table(bias, quantity, best, f"The {len(best)} strongest, {title}"),
        class_table(bias, quantity, rest, f"The others, {title}"),
        _notes(bias),
    )


def _notes(bias: ClassBias) -> tuple[str, ...]:
    lines = [
        "p: this class against the rest, by shuffling the class labels, adjusted (Holm) for the number of classes; "
        f"chance does not explain it where p is at most {bias.alpha:g}."
    ]
    if any(one.images == 1 for one in bias.classes):
        lines.append("( ) a single image says nothing about its class: listed, not tested.")
    if any(one.mean.measured_lower is None for one in bias.classes):
        lines.append(APPROXIMATE.replace("[ ]", "the interval"))
    if bias.left_out:
        lines.append(f"{count(bias.left_out, 'sample')} left out: no {bias.by}, or no finite value.")
    return tuple(lines)
