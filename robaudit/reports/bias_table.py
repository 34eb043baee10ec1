"""How does robustness by class read in a terminal and as CSV?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from robaudit.reports import numbers
from robaudit.reports.names import class_name
from robaudit.reports.tables import APPROXIMATE, Responsive, base_table, heading, legend, plain
from robaudit.store.serialise import table_csv
from robaudit.summary.bias_result import ClassBias, ClassStats
from robaudit.summary.estimates import Mean, Quantile, Share
from robaudit.summary.groups import QuantityLike, quantity_of

NAME_WIDTHS = {True: 14, False: 24}
VERDICT_STYLE = {"real": "bold yellow", "noise": "bold", "untested": "bold"}


def bias_table(bias: ClassBias, quantity: QuantityLike | None = None) -> Responsive:
    """A line per class, least robust first, then the gap and the verdict in words.

    Args:
        bias: from :func:`robaudit.summary.bias.class_bias`.
        quantity: what the values are; ours are known without it.
    """
    known = quantity or quantity_of(bias.key.quantity, None)
    return Responsive(lambda narrow: _build(bias, known, narrow))


def bias_csv(bias: ClassBias) -> str:
    """A line per class, in order of class: the group, then the fields of :class:`ClassStats`.

    A field with parts becomes columns: ``mean`` for its value, ``mean_lower`` and so on for the rest.
    """
    group = {"estimator": bias.key.estimator, "sigma": bias.key.sigma, "by": bias.by, "threshold": bias.threshold}
    lines = [{**group, **_flat(one)} for one in bias.classes]
    return table_csv(list(lines[0]), (list(line.values()) for line in lines))


def label_of(one: ClassStats, width: int | None = None) -> str:
    """``3 (cat)``, shortened to ``width``."""
    return class_name(one.index, None if one.name is None else {one.index: one.name}, width)


def _flat(one: ClassStats) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for field in fields(one):
        value = getattr(one, field.name)
        if isinstance(value, Mean | Quantile | Share):
            for part in fields(value):
                flat[field.name if part.name == "value" else f"{field.name}_{part.name}"] = getattr(value, part.name)
        else:
            flat[field.name] = value
    return flat


def _build(bias: ClassBias, quantity: QuantityLike, narrow: bool) -> Iterable[RenderableType]:
    classes = "label" if bias.by == "label" else "predicted class"
    yield from heading(bias.key, bias.unit, bias.higher_is_better, str(bias.key), f"by {classes}")
    table = base_table(narrow)
    table.add_column("class", no_wrap=True)
    share = (f"< {bias.threshold:g}",) if bias.threshold <= quantity.high else ()
    for name in ("n", "mean [95% interval]", "error", "25%", "50%", "75%", *share, "p", ""):
        table.add_column(name, justify="right" if name else "left", no_wrap=not name.startswith("mean"))
    for one in sorted(bias.classes, key=lambda one: one.mean.value if bias.higher_is_better else -one.mean.value):
        differs = one.differs if one.differs in ("lower", "higher") else ""
        table.add_row(*map(plain, _cells(one, quantity, narrow, share=bool(share))), Text(differs, style="yellow"))
    yield table
    yield from _gap_lines(bias)
    yield plain(bias.explanation, VERDICT_STYLE[bias.verdict])
    yield from legend(_legend(bias, share=bool(share)))


def _cells(one: ClassStats, quantity: QuantityLike, narrow: bool, *, share: bool) -> Iterable[str]:
    ends = quantity.low, quantity.high
    yield label_of(one, NAME_WIDTHS[narrow])
    yield f"{one.images:,}"
    if one.images == 1:
        yield f"({numbers.estimate(one.mean.value, one.mean.measured_lower, one.mean.measured_upper, *ends)})"
    else:
        mark = numbers.NO_INTERVAL if one.mean.measured_lower is None else ""
        yield mark + numbers.with_interval(one.mean.value, one.mean.lower, one.mean.upper, *ends, tight=narrow)
    yield "" if one.mean.measurement_error is None else f"{one.mean.measurement_error:.3f}"
    for quartile in (one.q25, one.median, one.q75):
        yield numbers.short(quartile.value, quartile.measured_lower, *ends) if one.images > 1 else ""
    if share:
        yield numbers.percent(one.below.count, one.below.total, one.below.lower, one.below.upper, tight=narrow) if one.images > 1 else ""
    yield "" if one.p_holm is None else numbers.p_value(one.p_holm)


def _gap_lines(bias: ClassBias) -> Iterable[Text]:
    if bias.gap is not None:
        by_index = {one.index: one for one in bias.classes}
        least, most = label_of(by_index[bias.gap.least]), label_of(by_index[bias.gap.most])
        reach = f"[{bias.gap.lower:.3f}, {bias.gap.upper:.3f}]"
        yield plain(f"Least robust: {least}. Most robust: {most}. Gap {bias.gap.value:.3f} {reach}, simultaneous over all classes.")


def _legend(bias: ClassBias, *, share: bool) -> list[str]:
    below = f"< {bias.threshold:g}: share of images below. " if share else ""
    lines = [
        f"[ ] interval over images, each class by itself. error: of the mean, from measuring these images. 25%, 50%, 75%: quartiles. "
        f"{below}p: this class against the rest, by shuffling, Holm-adjusted for the number of "
        f"classes; lower, higher: p <= {bias.alpha:g}."
    ]
    if any(one.images == 1 for one in bias.classes):
        lines.append("( ) a single image says nothing about its class: listed, not tested.")
    if any(one.mean.measured_lower is None for one in bias.classes):
        lines.append(APPROXIMATE)
    if bias.left_out:
        lines.append(f"{bias.left_out:,} sample(s) left out: no {bias.by}, or no finite value.")
    return lines
