"""How do the flagged samples read in a terminal and as CSV?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from robaudit.reports import numbers
from robaudit.reports.names import Names, class_name, shortened
from robaudit.reports.tables import Responsive, base_table, heading, legend, plain
from robaudit.store.serialise import table_csv
from robaudit.summary.flags import Flag, Flagged
from robaudit.summary.groups import QuantityLike, quantity_of
from robaudit.text import printable

ID_WIDTHS = {True: 16, False: 30}
CLASS_WIDTHS = {True: 11, False: 20}


def flags_table(
    flagged: Flagged, class_names: Names | None = None, quantity: QuantityLike | None = None, limit: int | None = 50
) -> Responsive:
    """How many are flagged, then the list, worst first, then the most robust ones where asked.

    Args:
        flagged: from :func:`robaudit.summary.flags.flag`.
        class_names: by class index.
        quantity: what the values are; ours are known without it.
        limit: lines a list prints at most (the rest is counted); None prints all.
    """
    known = quantity or quantity_of(flagged.key.quantity, None)

    def build(narrow: bool) -> Iterable[RenderableType]:
        yield from heading(flagged.key, flagged.unit, flagged.higher_is_better, str(flagged.key))
        yield plain(count_line(flagged))
        for order, samples in (("Least robust first", flagged.samples), ("Most robust first", flagged.robust)):
            if samples:
                yield Text(f"\n{order}{', class by class' if flagged.per_class else ''}:")
                yield _table(samples[:limit], flagged, class_names, known, narrow=narrow)
            if limit is not None and len(samples) > limit:
                yield Text(f"... and {len(samples) - limit:,} more, which -o FILE writes too.")
        yield from legend(_legend(flagged))

    return Responsive(build)


def flags_csv(flagged: Flagged) -> str:
    """A line per sample: the group, the list it is on ("flagged" or "robust"), then the fields of :class:`Flag`."""
    names = [field.name for field in fields(Flag)]
    group = [flagged.key.estimator, flagged.key.sigma, flagged.threshold]
    lists = (("flagged", flagged.samples), ("robust", flagged.robust))
    lines = ([*group, name, *(getattr(sample, field) for field in names)] for name, samples in lists for sample in samples)
    return table_csv(["estimator", "sigma", "threshold", "list", *names], lines)


def count_line(flagged: Flagged) -> str:
    """How many of how many are beyond the threshold, and how surely."""
    side = "below" if flagged.higher_is_better else "above"
    kind = f"{flagged.only} " if flagged.only else ""
    text = f"{flagged.beyond:,} of {flagged.total:,} {kind}samples are {side} {flagged.threshold:g}"
    if flagged.with_interval == 0:
        return f"{text}; none surely, for these estimates have no interval."
    if flagged.likely:
        whole = f"{flagged.likely:,} of them likely (their whole interval, which leaves out the estimator's bias)"
        whole += f", {flagged.surely:,} surely" if flagged.surely else ""
    else:
        whole = f"{flagged.surely:,} of them by their whole interval"
    return f"{text}, {whole}; for {flagged.maybe:,} the interval straddles {flagged.threshold:g}."


def _table(samples: Sequence[Flag], flagged: Flagged, names: Names | None, quantity: QuantityLike, *, narrow: bool) -> Table:
    table = base_table(narrow)
    for name in (
        "sample",
        "label",
        "predicted",
        "value [95% interval]",
        "flips to",
        f"{'<' if flagged.higher_is_better else '>'} {flagged.threshold:g}?",
    ):
        table.add_column(name, justify="right" if name.startswith("value") else "left", no_wrap=not name.startswith("value"))
    for one in samples:
        cells = (
            shortened(printable(one.id), ID_WIDTHS[narrow]),
            *(class_name(index, names, CLASS_WIDTHS[narrow]) for index in (one.label, one.predicted)),
            numbers.with_interval(one.value, one.lower, one.upper, quantity.low, quantity.high, tight=narrow),
            class_name(one.flips_to, names, CLASS_WIDTHS[narrow]),
        )
        table.add_row(*map(plain, cells), Text(_answer(one, flagged), style="red" if one.certainty == "surely" else ""))
    return table


def _answer(one: Flag, flagged: Flagged) -> str:
    """Whether the sample is beyond the threshold, in words."""
    if one.certainty != "no interval":
        return one.certainty
    beyond = one.value < flagged.threshold if flagged.higher_is_better else one.value > flagged.threshold
    return "~yes" if beyond else "~no"


def _legend(flagged: Flagged) -> list[str]:
    listed = flagged.samples + flagged.robust
    lines = []
    if any(one.certainty in ("surely", "maybe") for one in listed):
        lines.append("surely: the whole interval is beyond the threshold; maybe: the interval straddles it.")
    if any(one.certainty == "likely" for one in listed):
        lines.append("likely: the whole interval is beyond the threshold, but covers sampling only, not the estimator's bias.")
    if any(one.certainty == "no interval" for one in listed):
        lines.append("~ no interval: an approximation of unknown error, so nothing is sure.")
    if flagged.filtered:
        lines.append(f"{flagged.filtered:,} sample(s) filtered out: not known to be {flagged.only}.")
    if flagged.not_finite:
        lines.append(f"{flagged.not_finite:,} sample(s) left out: not a finite value.")
    return lines
