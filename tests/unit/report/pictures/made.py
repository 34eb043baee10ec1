"""Runs that are made by hand, in memory, for the pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from robaudit.quantities import CONFIDENCE, LOG10_P_FAIL, LOSS, NO_INTERVAL, P_ROBUST, Interval
from robaudit.rows import Row
from robaudit.store.run import Run
from tests import levels
from tests.rows import ROW
from tests.unit.report.html.tools import hand_made

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HOSTILE = (
    "$\\frac{1}{0}$",
    "</svg><script>alert(1)</script>",
    '"><img src=x onerror=y> & \x1b[31m\x00 \u202e',
    "a very long class name " * 20,
    "\u732b\U0001f431 \ud800",
    "#22262b; fill: url(http://x.example/)",
)


def texts(figure: Figure) -> list[str]:
    """Every text of a figure."""
    from matplotlib.text import Text

    return [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]


def row(number: int, value: float, **fields: Any) -> Row:
    """A result of ``mc`` at sigma 0.1 without an interval; the fields change it."""
    of = {"sample_id": str(number), "label": number % 2, "predicted": number % 2, "lower": None, "upper": None, "flips_to": None}
    return replace(ROW, value=value, **{**of, "std_error": None, "forwards": 11, "interval": NO_INTERVAL, "votes": None, **fields})


def run(rows: Iterable[Row], *, seconds: Mapping[str, float] | None = None) -> Run:
    """A finished run of these rows."""
    rows = tuple(rows)
    data = {"where": "nowhere", "class_names": None, "labelled": sum(one.label is not None for one in rows)}
    quantities = [one.document() for one in (P_ROBUST, CONFIDENCE, LOG10_P_FAIL, LOSS)]
    return hand_made(rows, name="made", data=data, quantities=quantities, seconds=seconds or {})


def usual(
    images: int = 40, estimators: Sequence[str] = ("mc", "logit_gaussian"), sigmas: Sequence[float] = (0.05, 0.1), classes: int = 4
) -> Run:
    """Values between 0 and 1 with intervals, worse where there is more noise, in some classes."""
    generator = np.random.default_rng(0)
    rows = []
    for number in range(images):
        ease = float(generator.beta(3, 1))
        for sigma in sigmas:
            for place, estimator in enumerate(estimators):
                value = float(np.clip(ease ** (10 * sigma) + 0.02 * place * generator.standard_normal(), 0, 1))
                label = number % classes
                ends = {
                    "lower": max(0.0, value - 0.03),
                    "upper": min(1.0, value + 0.03),
                    "interval": Interval.parse("jackknife:approximate"),
                }
                rows.append(row(number, value, label=label, predicted=label, level=sigma, estimator=estimator, **ends))
    seconds = {f"{estimator}@{levels.sigma(sigma).key}": 0.1 * 30**i for sigma in sigmas for i, estimator in enumerate(estimators)}
    return run(rows, seconds=seconds)


def losses(
    images: int = 30,
    orders: Sequence[float] = (1, 10, 100, 1000),
    *,
    estimators: Sequence[str] = ("qnorm_path", "qnorm_mc"),
    attacks: Sequence[str] = ("adversarial_loss",),
    eps: Sequence[float] = (0.1,),
    scale: float = 1.0,
    spread: float = 2.0,
    ids: Sequence[str] = (),
) -> Run:
    """Losses by q under uniform noise that rise from the average to what the attacks find, further for some images; every further
    estimator stays lower."""
    generator = np.random.default_rng(0)
    rows = []
    for number in range(images):
        average, steepness = scale * float(generator.lognormal(0, spread)), 1.5 * float(generator.gamma(spread, 0.5))
        for level in eps:
            common = {
                "noise": "uniform",
                "level_name": "eps",
                "level": level,
                "quantity": LOSS.name,
                **({"sample_id": ids[number % len(ids)] + str(number)} if ids else {}),
            }
            for place, estimator in enumerate(estimators):
                for q in orders:
                    share = q / (q + 50) / (1 + place)
                    value = average * level / eps[0] * math.exp(share * steepness)
                    ends = {"lower": 0.95 * value, "upper": 1.05 * value, "interval": Interval.parse("chains:approximate")}
                    rows.append(row(number, value, estimator=f"{estimator}:q={q:.15g}", **common, **ends))
            for attack in attacks:
                rows.append(row(number, average * level / eps[0] * math.exp(1.1 * steepness), estimator=attack, **common))
    return run(rows)
