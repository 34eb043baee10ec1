"""How does the overall result read in a terminal?

Colour is sparing and repeats what the text says. All text is :class:`rich.text.Text`: names with brackets are no markup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from robaudit.report import numbers
from robaudit.summary.groups import GroupKey, QuantityLike, quantity_of
from robaudit.summary.overall import GroupSummary
from robaudit.text import printable

WIDE = 100
MEANINGS = {
    "p_robust": "probability that noise leaves the prediction unchanged",
    "log10_p_fail": "probability that noise changes the prediction, as a power of ten: -6 is one in a million",
    "confidence": "softmax score of the clean image (no noise enters it)",
}
APPROXIMATE = "~ no interval of its own: each image's value is an approximation of unknown error; [ ] covers the choice of images only."


@dataclass(frozen=True, slots=True)
class Responsive:
    """Renderables that depend on whether the terminal is narrow: under 100 columns, and anything that is no terminal (80)."""

    build: Callable[[bool], Iterable[RenderableType]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.build(options.max_width < WIDE)


def overall_tables(
    groups: Sequence[GroupSummary],
    seconds: Mapping[tuple[str, float], float] | None = None,
    quantities: Mapping[str, QuantityLike] | None = None,
) -> Responsive:
    """A table for each quantity and kind of noise, which never share one, with a line per estimator and noise level.

    Args:
        groups: from :func:`robaudit.summary.overall.summarise`.
        seconds: time by (estimator, sigma); an empty cell where unknown.
        quantities: descriptions of quantities that are not ours.
    """

    def build(narrow: bool) -> Iterable[RenderableType]:
        for kind in dict.fromkeys((group.key.quantity, group.key.noise) for group in groups):
            members = [group for group in groups if (group.key.quantity, group.key.noise) == kind]
            yield from _overall(members, seconds or {}, quantity_of(kind[0], quantities), narrow)

    return Responsive(build)


def plain(text: str, style: str = "") -> Text:
    """The text as it is, without markup; what could steer a terminal is written as escapes."""
    return Text(printable(text), style=style)


def heading(key: GroupKey, unit: str, higher_is_better: bool, *more: str) -> list[Text]:
    """What the numbers below it are: a line for the quantity, one for the circumstances."""
    facts = (f"{key.noise} noise", "higher is better" if higher_is_better else "lower is better", *more)
    return [plain(f"{key.quantity}: {MEANINGS.get(key.quantity, unit)}", "bold"), plain(", ".join(facts))]


def base_table(narrow: bool) -> Table:
    """An empty table in our style."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0) if narrow else (0, 1, 0, 0))


def legend(lines: Sequence[str]) -> list[Text]:
    """Lines under a table, and an empty one."""
    return [*(plain(line, "dim") for line in lines), Text()]


def _overall(
    groups: Sequence[GroupSummary], seconds: Mapping[tuple[str, float], float], quantity: QuantityLike, narrow: bool
) -> Iterable[RenderableType]:
    counts = {group.images for group in groups}
    facts = [f"{groups[0].images:,} images"] if len(counts) == 1 else []
    yield from heading(groups[0].key, quantity.unit, quantity.higher_is_better, *facts)
    table = base_table(narrow)
    for name in ("estimator", "sigma"):
        table.add_column(name, no_wrap=True)
    shares = ("< 0.5", "< 0.9") if _reaches(quantity) else ()
    for name in ("mean [95% interval]", *(["images"] if not facts else []), "median", "5th %ile", *shares, "seconds"):
        table.add_column(name, justify="right", no_wrap=not name.startswith("mean"))
    sigma_text = numbers.sigmas(group.key.sigma for group in groups)
    for group in groups:
        time = numbers.duration(seconds.get((group.key.estimator, group.key.sigma)))
        cells = (group.key.estimator, sigma_text[group.key.sigma], *_cells(group, quantity, not facts, narrow), time)
        table.add_row(*map(plain, cells))
    yield table
    yield from legend(_legend(groups, shares=_reaches(quantity)))


def _reaches(quantity: QuantityLike) -> bool:
    """Whether it reaches .5 and .9, so that the shares below say something."""
    return quantity.high > 0.9


def _cells(group: GroupSummary, quantity: QuantityLike, with_count: bool, narrow: bool) -> Iterable[str]:
    """The cells from the mean to the shares."""
    ends = quantity.low, quantity.high
    mean = numbers.with_interval(group.mean.value, group.mean.lower, group.mean.upper, *ends, tight=narrow)
    yield ("" if group.with_interval == group.images else numbers.NO_INTERVAL) + mean
    if with_count:
        yield f"{group.images:,}"
    for quantile in (group.median, group.p05):
        yield numbers.estimate(quantile.value, quantile.measured_lower, quantile.measured_upper, *ends)
    for share in (group.below_half, group.below_ninety) if _reaches(quantity) else ():
        yield numbers.percent(share.count, share.total, share.lower, share.upper, tight=narrow)


def _legend(groups: Sequence[GroupSummary], *, shares: bool) -> list[str]:
    lines = [
        "[ ] 95 % interval of the mean over images of this kind." + (" < 0.5, < 0.9: share of images below." if shares else ""),
        "5th %ile: 95 % of the images have at least this value.",
    ]
    if any(group.with_interval < group.images for group in groups):
        lines.append(APPROXIMATE)
    if biased := list(dict.fromkeys(group.key.estimator for group in groups if group.sampling_only)):
        lines.append(f"{', '.join(biased)}: the interval of an image covers its noise draws only, not the bias of the approximation.")
    if leaning := list(dict.fromkeys(group.key.estimator for group in groups if group.adaptive)):
        lines.append(
            f"{', '.join(leaning)}: images that stopped by themselves lean to that side, and their mean with them; [ ] allows for it."
        )
    if dropped := sum(group.not_finite for group in groups):
        lines.append(f"{dropped:,} result(s) left out: not a finite number.")
    if noted := sum(group.noted for group in groups):
        lines.append(f"{noted:,} result(s) carry a note: see the column note of samples.csv.")
    return lines
