"""The coverage study as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from textwrap import fill

import torch
from scipy.stats import binom

from tests.benchmarks.machine import machine
from tests.benchmarks.report import Table, number
from tests.coverage.audits import COUNTED, DROPS, GATES, LIKE, LIMIT, MANY, RESAMPLED, SAMPLED, Errors, together
from tests.coverage.study import NOMINAL, PROBABILITIES, Line

HEAD = (
    "# Do the intervals cover?\n\n"
    "Written by `python -m tests.coverage`; `tests/coverage` asserts the same numbers (`pytest -m slow tests/coverage`).\n\n"
    f"Every interval claims {100 * NOMINAL:.0f} %. Each entry is the share of simulated cases whose interval contained the truth\n"
    "(**bold**: less than nominal minus two binomial standard errors), with the mean width below it. The columns are the truth: the\n"
    "probability p or, for the jackknife, the value that the estimator converges to, whose bias it does not cover. `-`: no such case\n"
    "exists (a linear margin cannot put p at one half or below).\n"
)
TITLES = {
    "clopper-pearson": (
        "Clopper-Pearson",
        "`mc` with fixed `samples`. Exact: too wide rather than too narrow, especially where few copies flip.",
    ),
    "antithetic pairs": (
        "Antithetic pairs",
        "The votes by which `logit_gaussian` decides images whose margins are not normal, and all gates and comparisons on its results.\n"
        "By enumeration each side misses at most 2.5 % for every p, however the two copies of a pair depend on each other\n"
        "(`tests/unit/numerics/test_paired.py`).",
    ),
    "confidence-sequence": (
        "Confidence sequences",
        "`mc` with `tolerance` or `decide`. *Checked after every draw*: a case counts as covered if the interval contained p every time;\n"
        "the width is the final one. The other lines are the printed intervals of images that stopped.",
    ),
    "jackknife:approximate": (
        "Jackknife",
        "Two classes whose margin is a polynomial in the noise, so that the value it converges to is known: sampling only, no bias of the\n"
        "approximation. Images that `logit_gaussian` decided by votes are left out.",
    ),
    "mean over images": (
        "Means over images",
        "`mean_interval`: what the tables print for the mean of images like these, with values of 0 and 1 or spread in between.",
    ),
}


NETWORKS = (
    "Whole audits of networks that nobody tuned for:\n{names}.\nThose with layers or convolutions in their name are trained here on the\n"
    "embedded digits; the others are shared models from elsewhere, with a quarter of the images. {settings}; `mmse` with a tenth of\n"
    "the seeds. The truth is the share of the copies of each image; its own error adds to what is counted, most for `--until-decided`."
)
SHOWN = (
    "At most 2.5 % each way should be wrong. **Bold**: as many or more would have a probability below 2.5 % at that rate. None wrong\n"
    "of {few} shows that fewer than {few_most:.0%} are, none of {all} that fewer than {all_most:.1%} are (at 95 %): one network\n"
    "alone shows gross errors only. *Worst*: the network with the most errors for their number."
)
VERDICTS = (
    "A gate put at the truth, where each verdict is wrong: passed / failed, of all verdicts; mean width of the interval below.\n"
    "`mmse`, `taylor`, `moments`, `softmax` and `qnorm_mc` are not here: their verdicts are inconclusive."
)
POPULATION = (
    "The same with `--population`: {sampled} images are drawn from all of the network's, each from another audit, {resampled} times;\n"
    "the truth is that of all its images. Last, the gap of `bias-report`: its interval above / below the true gap."
)
COMPARED = "`compare` with the network whose weights moved by 2 %, on the same noise, at the true drop."
ROWS = (
    "Lower end above p / upper end below p, in percent of the rows, by p; mean width below. The intervals of `logit_gaussian` and\n"
    "`mmse` are called *approximate* because they cover the draws only: no gate rests on them, but on the votes of the same copies\n"
    "where there are any."
)


def markdown(lines: Iterable[Line], seconds: float, audits: Sequence[Errors] = (), settings: str = "") -> str:
    """The report; ``settings``: of the audits, in words."""
    found = sorted(lines, key=lambda line: list(TITLES).index(line.interval))
    on = machine(torch.device("cpu"))
    cases = sorted({line.cases for line in found}) or [0]
    about = f"Measured on {on['date']}: {on['cpu']}, torch {on['torch']}, {seconds:.0f} s; {_numbers(cases)} cases per entry."
    parts = [HEAD, f"{about}\n"]
    for interval, group in groupby(found, key=lambda line: line.interval):
        title, reading = TITLES[interval]
        parts.append(f"## {title}\n\n{reading}\n\n{_table(list(group)).markdown()}\n")
    low = [line for line in found if not line.holds]
    parts.append("## Below nominal\n\n" + ("\n".join(f"- {_sentence(line)}" for line in low) if low else "None.") + "\n")
    if audits:
        parts.insert(2, "\n\n".join(_audits(audits, settings)) + "\n")
    parts += [f"{reason}\n" for reason in dict.fromkeys(line.exempt for line in low if line.exempt)]
    return "\n".join(parts)


def _table(lines: Sequence[Line]) -> Table:
    rows = []
    for setting in dict.fromkeys(line.setting for line in lines):
        at = {line.truth: line for line in lines if line.setting == setting}
        entries = [at.get(p) for p in PROBABILITIES]
        draws = [line.draws for line in at.values()]
        rows.append([setting, _numbers(draws), *("-" if line is None else _entry(line) for line in entries)])
    return Table(["", "draws", *(f"{p:g}" for p in PROBABILITIES)], rows)


def _numbers(some: Sequence[float]) -> str:
    """The smallest and the largest."""
    return f"{min(some):,.0f}" if max(some) == min(some) else f"{min(some):,.0f} to {max(some):,.0f}"


def _audits(found: Sequence[Errors], settings: str) -> Iterator[str]:
    """What whole audits showed."""
    verdicts = [one for one in found if not one.rows]
    means = [one for one in verdicts if one.about == "mean" and one.estimator == COUNTED]
    names = fill("; ".join(dict.fromkeys(one.network for one in found)), 128)
    yield "## By network"
    yield NETWORKS.format(names=names, settings=settings)
    if means:
        few, everything = means[0].cases, together(means).cases
        yield SHOWN.format(few=few, few_most=_at_most(few), all=everything, all_most=_at_most(everything))
    population = POPULATION.format(sampled=SAMPLED, resampled=RESAMPLED)
    drops = [one for one in verdicts if one.about.removeprefix(LIKE) in DROPS]
    like = [one for one in verdicts if one.about.startswith(LIKE) and one not in drops]
    for head, some in (
        ("### Gates on these images\n\n" + VERDICTS, [one for one in verdicts if one.about in GATES or one.about.startswith(MANY)]),
        (
            "### Gates on images like these\n\n" + population,
            like,
        ),
        ("### Comparisons\n\n" + COMPARED, drops),
        ("### Rows\n\n" + ROWS, [one for one in found if one.rows]),
    ):
        if some:
            yield head
            yield _by_estimator(some)


def _by_estimator(found: Sequence[Errors]) -> str:
    """All networks together: an estimator to a line, what it is about to a column; the worst network last."""
    abouts = list(dict.fromkeys(one.about for one in found))
    if found[0].rows:
        abouts.sort(key=lambda about: float(about.removeprefix("to ")))
    rows = []
    for estimator in dict.fromkeys(one.estimator for one in found):
        mine = [one for one in found if one.estimator == estimator]
        cells = [[one for one in mine if one.about == about] for about in abouts]
        rows.append([estimator, *(_cell(together(some)) if some else "-" for some in cells), _worst(mine)])
    alike = all(about.startswith(LIKE) for about in abouts)
    heads = [about.removeprefix(LIKE) + ("" if alike or not about.startswith(LIKE) else ", --population") for about in abouts]
    return Table(["", *heads, "worst"], rows).markdown()


def _cell(one: Errors) -> str:
    up, down = (f"{100 * k / one.cases:.1f}" if one.rows else f"{k}" for k in (one.up, one.down))
    text = f"{up} / {down}" if one.rows else f"{up} / {down} of {one.cases:,}"
    width = "" if math.isnan(one.width) else f"<br>{number(one.width)}"
    return f"{f'**{text}**' if _chance(one) < 0.025 else text}{width}"


def _worst(some: Sequence[Errors]) -> str:
    """The network with the least likely errors, if there are any."""
    one = min(some, key=_chance)
    if not max(one.up, one.down):
        return "none"
    what = "p " + one.about if one.rows else one.about.removeprefix(LIKE)
    return f"{one.network}, {what}: {one.up} / {one.down} of {one.cases:,}"


def _chance(one: Errors) -> float:
    """Of so many errors or more on the worse side, where the error is at its limit."""
    return float(binom.sf(max(one.up, one.down) - 1, one.cases, LIMIT))


def _at_most(cases: int) -> float:
    """The share below which the error is, at 95 %, when none of so many cases is wrong."""
    return float(1 - 0.05 ** (1 / cases))


def _entry(line: Line) -> str:
    share = f"{line.covered:.3f}"
    return f"{share if line.holds else f'**{share}**'}<br>{number(line.width)}"


def _sentence(line: Line) -> str:
    return f"{line.interval}, {line.setting}, p = {line.truth:g}: {line.covered:.4f} (at least {line.floor:.4f} required)"
