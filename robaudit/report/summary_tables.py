"""The headline and the overall result of a run, for terminals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group

from robaudit.levels import NO_NOISE, NoiseLevel, noise_level
from robaudit.names import ResultName
from robaudit.quantities import Quantity
from robaudit.report import numbers
from robaudit.report.sections import Ask, Found, Section, Sheet, offered
from robaudit.report.tables import Column, Table, Terminal, cells, plain
from robaudit.stats.groups import GroupKey, quantity_of
from robaudit.stats.intervals import LIKE_THESE
from robaudit.stats.summary import GroupSummary
from robaudit.store.run import Run
from robaudit.text import count, printable

MEANINGS = {
    "p_robust": "probability that noise leaves the prediction unchanged",
    "log10_p_fail": "probability that noise changes the prediction, as a power of ten: -6 is one in a million",
    "loss": "cross-entropy under noise: for q = 1 its mean, towards its maximum as q grows",
    "confidence": "softmax score of the clean image (no noise enters it)",
    "radius": "norm of the smallest change of the image that changes the prediction",
    "certified_radius": "norm up to which the class provably stays the same; 0 where nothing is certified",
    "noise_tolerance": "largest noise level that leaves the prediction unchanged often enough",
    "difficulty": "logit of the clean score of the class: larger is easier (no noise enters it)",
}


class SummarySection(Section[tuple[GroupSummary, ...]]):
    """What was audited, clean accuracy first, and mean, quantiles and shares of each result."""

    def records(self, run: Run, ask: Ask) -> list[tuple[GroupSummary, ...]]:
        """The summaries of the results, together."""
        groups = {(group.key.estimator, group.key.at): group for group in run.summary()}
        return [tuple(groups[key] for key in run.chosen(groups, ask.estimators, ask.levels))]

    def table(self, one: Found[tuple[GroupSummary, ...]], ask: Ask) -> Group:
        """The headline, and a table for each quantity."""
        run = one.run
        keys = [(group.key.estimator, group.key.at) for group in one.record]
        seconds = {key: spent for key in keys if (spent := run.seconds_of(*key)) is not None}
        files = f"Files: {run.path}/samples.csv, samples.json, summary.json, run.json"
        more = f"robaudit show {run.path} SECTION has: {', '.join(offered(run))}"
        head, tail = (*warning_lines(run.info), *headline(run.info), ""), (files, more)
        return Group(*map(plain, head), overall_tables(one.record, seconds, run.quantities), *map(plain, tail))

    def sheet(self, one: Found[tuple[GroupSummary, ...]], ask: Ask) -> Sheet:
        """A line for each result; a number with its interval takes several columns: ``mean``, ``mean_lower``, ..."""
        lines = [dict(_flat(group.document())) for group in one.record]
        columns = list(dict.fromkeys(column for line in lines for column in line))
        return Sheet(columns, [[line.get(column) for column in columns] for line in lines])

    def document(self, one: Found[tuple[GroupSummary, ...]], ask: Ask) -> dict[str, Any]:
        """The headline's numbers, and the groups as in summary.json."""
        about = {key: one.run.info[key] for key in ("clean_accuracy", "noisy_accuracy", "warnings")}
        return {**about, "groups": [group.document() for group in one.record]}


def _flat(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from ((name if part == "value" else f"{name}_{part}", number) for part, number in value.items())
        else:
            yield name, value


def headline(info: Mapping[str, Any]) -> list[str]:
    """The lines above a run's tables, from run.json, below :func:`warning_lines`: clean accuracy first, then model, data and noise."""
    totals, data, model = info["totals"], info["data"], info["model"]
    skipped = f", {totals['skipped']} skipped" if totals["skipped"] else ""
    passes = f"{totals['forwards']:,} forward and {totals['backwards']:,} backward passes"
    lines = [
        f"clean accuracy  {_accuracy(info['clean_accuracy'])}",
        *_noisy(info["noisy_accuracy"]),
        f"model           {model['name']} ({model['format']}, {model['classes']} classes, sha256 {model['sha256'][:8]})",
        f"data            {data['where']}: {count(totals['samples'], 'sample')}{skipped}",
        f"noise           {info['noise']}",
        f"run             seed {info['seed']}, {info['device']}, {passes}",
    ]
    lines += [f"skipped         {skip['reason']}" for skip in info["skipped"][:3]]
    if len(info["skipped"]) > 3:
        lines.append(f"skipped         and {len(info['skipped']) - 3} more: see run.json")
    return [printable(line) for line in lines]


def warning_lines(info: Mapping[str, Any]) -> list[str]:
    """The lines that lead whatever is printed about a run that warned."""
    return [printable(f"warning         {text}") for text in info["warnings"]]


def overall_tables(
    groups: Sequence[GroupSummary],
    seconds: Mapping[tuple[str, NoiseLevel], float] | None = None,
    quantities: Mapping[str, Quantity] | None = None,
) -> Terminal:
    """A table for each quantity and name of levels, which never share one, with a line per estimator and noise level.

    Args:
        groups: from :func:`robaudit.stats.summary.summarise`.
        seconds: time by (estimator, noise level); an empty cell where unknown.
        quantities: descriptions of the quantities of plugins.
    """

    def build(narrow: bool) -> Iterator[Table]:
        for kind in dict.fromkeys((group.key.quantity, group.key.at.name) for group in groups):
            members = [group for group in groups if (group.key.quantity, group.key.at.name) == kind]
            yield _overall(members, seconds or {}, quantity_of(kind[0], quantities), narrow)

    return Terminal(build)


def heading(key: GroupKey, unit: str) -> str:
    """The quantity that a table is about, and its meaning."""
    return f"{key.quantity}: {MEANINGS.get(key.quantity, unit)}"


def circumstances(key: GroupKey | None, higher_is_better: bool, *more: str) -> str:
    """The line below the heading: noise (of a group; None: several), direction, and ``more``."""
    under = () if key is None else ("no noise" if key.at == NO_NOISE else f"{key.noise} noise",)
    return ", ".join((*under, "higher is better" if higher_is_better else "lower is better", *more))


def caveats(groups: Sequence[GroupSummary], interval: str = "the interval") -> Iterator[str]:
    """The limits of these groups' numbers, one line each.

    Args:
        groups: shown together.
        interval: what the table calls the interval of the mean.
    """
    if any(group.with_interval < group.images for group in groups):
        yield approximate(interval)
    if biased := list(dict.fromkeys(ResultName.parse(group.key.estimator).estimator for group in groups if group.approximate)):
        yield f"{', '.join(biased)}: approximate: the interval of an image covers its noise draws, not the bias of the approximation."
    if leaning := list(dict.fromkeys(group.key.estimator for group in groups if group.adaptive)):
        yield (
            f"{', '.join(leaning)}: images that stopped early are biased towards the side on which they stopped, and so is their mean; "
            f"{interval} allows for it."
        )
    yield from censoring(groups)
    if bounds := list(dict.fromkeys(ResultName.parse(group.key.estimator).estimator for group in groups if group.of_search)):
        yield f"<= {', '.join(bounds)}: upper bounds; the true value of an image may be smaller."
    if bounds := list(dict.fromkeys(ResultName.parse(group.key.estimator).estimator for group in groups if group.lower_bounds)):
        yield f">= {', '.join(bounds)}: lower bounds; the true value of an image may be larger."
    if dropped := sum(group.not_finite for group in groups):
        yield f"{count(dropped, 'result')} left out: not a finite number."
    if noted := sum(group.noted for group in groups):
        yield f"{count(noted, 'result')} with a note: see the column note of samples.csv."


def censoring(groups: Sequence[GroupSummary]) -> Iterator[str]:
    """How many values of which results are only known to be larger, or were not found, one line each."""
    for group in groups:
        if group.censored and group.cap is not None:
            where = "" if group.key.at == NO_NOISE else f" at {group.key.at}"
            beyond, how = f"beyond {group.cap:.4g}", "their mean counts them as that and is a lower bound"
            if group.not_found:
                beyond, how = f"not found up to {group.cap:.4g}", f"{how} of the radii that the search finds, not of the true ones"
            yield f"{group.key.estimator}{where}: {group.censored:,} of {count(group.images, 'image')} {beyond}; {how}."


def approximate(interval: str = "the interval") -> str:
    """The caveat of values without an interval of their own."""
    return (
        f"~ no interval of its own: each image's value is an approximation of unknown error; {interval} covers the choice of images only."
    )


def _accuracy(share: Mapping[str, Any] | None) -> str:
    if share is None:
        return "not measured (no labels)"
    value = numbers.with_percents(share["value"], share["lower"], share["upper"])
    return f"{value} ({share['count']:,} of {share['total']:,}; [ ] 95 % interval, {LIKE_THESE})"


def _noisy(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"{'under noise' if i == 0 else '':15} {numbers.with_percents(e['value'], e['lower'], e['upper'])} "
        f"at {noise_level(e['noise'], e['level'], e['level_name'])} ({e['estimator']})"
        for i, e in enumerate(entries)
    ]


def _overall(groups: Sequence[GroupSummary], seconds: Mapping[tuple[str, NoiseLevel], float], quantity: Quantity, narrow: bool) -> Table:
    key, counts = groups[0].key, {group.images for group in groups}
    several = len({group.key.noise for group in groups}) > 1
    facts = [count(groups[0].images, "image")] if len(counts) == 1 else []
    shares = ("< 0.5", "< 0.9") if quantity.is_share and quantity.higher_is_better else ()
    texts = numbers.level_numbers(group.key.at for group in groups)
    tail = "5th" if quantity.higher_is_better else "95th"
    rows = []
    for group in groups:
        time = numbers.duration(seconds.get((group.key.estimator, group.key.at)))
        name = (group.key.noise,) if several else ()
        rows.append(
            cells(
                (
                    group.key.estimator,
                    *name,
                    *([] if key.at.levelless else [texts[group.key.at]]),
                    *_cells(group, quantity, not facts, bool(shares), narrow),
                    time,
                )
            )
        )
    return Table(
        heading(key, quantity.unit),
        (
            *map(Column, ("estimator", *(["noise"] if several else []), *([] if key.at.levelless else [key.at.name.value]))),
            Column("mean [95% interval]", number=True, wrap=True),
            *(Column(name, number=True) for name in (*(["images"] if not facts else []), "median", f"{tail} %ile", *shares, "seconds")),
        ),
        tuple(rows),
        lines=(circumstances(None if several else key, quantity.higher_is_better, *facts),),
        notes=(
            f"[ ] 95 % interval of the mean, {LIKE_THESE}." + (" < 0.5, < 0.9: share of images below." if shares else ""),
            f"{tail} %ile: 95 % of the images have at {'least' if quantity.higher_is_better else 'most'} this value.",
            *caveats(groups, "[ ]"),
        ),
    )


def _cells(group: GroupSummary, quantity: Quantity, with_count: bool, with_shares: bool, narrow: bool) -> Iterator[str]:
    """The cells from the mean to the shares."""
    ends = quantity.low, quantity.high
    mean = numbers.mean_estimate(group.mean, *ends, tight=narrow)
    yield ("" if group.with_interval == group.images else numbers.NO_INTERVAL) + mean
    if with_count:
        yield f"{group.images:,}"
    for quantile in (group.median, group.bad_end):
        yield numbers.quantile_estimate(quantile, *ends)
    for share in (group.below_half, group.below_ninety) if with_shares else ():
        yield "" if share is None else numbers.share(share, tight=narrow)


def run_names(runs: Sequence[Run]) -> list[str]:
    """A different name for each run."""
    names = [run.info["name"] for run in runs]
    if len(set(names)) == len(names):
        return names
    named = [f"{name} ({run.path.name})" for name, run in zip(names, runs, strict=True)]
    return named if len(set(named)) == len(named) else [f"{i}: {name}" for i, name in enumerate(named, start=1)]
