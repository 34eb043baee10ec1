"""Results of every kind of one image, made by hand, and runs of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from robaudit.levels import LevelName, NoiseLevel
from robaudit.numerics.intervals import clopper_pearson
from robaudit.quantities import (
    CERTIFIED,
    LOG10_P_FAIL,
    LOSS,
    P_ROBUST,
    RADIUS,
    TOLERANCE,
    Interval,
    IntervalKind,
)
from robaudit.results import Certificate, LossNorm, Searched, Votes
from robaudit.runs.rows import Row
from robaudit.runs.run import Run
from tests.infos import run_info
from tests.radius_rows import row

SIGMA = NoiseLevel("gaussian", 0.1, LevelName.SIGMA)
STRONG = NoiseLevel("gaussian", 0.3, LevelName.SIGMA)
BOX = NoiseLevel("box", 0.1, LevelName.EPS)
SHAPE = (1, 2, 2)
NOISE = [
    {"kind": "gaussian", "name": "gaussian", "clip": False, "sigma": [0.1, 0.3]},
    {"kind": "uniform", "name": "box", "clip": False, "eps": [0.1]},
]


UNSTATED = Certificate()


def made(
    rows: Sequence[Row],
    *,
    shape: Sequence[int] | None = SHAPE,
    precision: str = "fp32",
    **labels: str,
) -> Run:
    """The rows as a finished run; ``labels``: estimators by label where they differ."""
    entries = [{"name": name, "label": label, "options": {}} for label, name in labels.items()]
    info = run_info(
        spec={"noise": NOISE, "estimators": entries, "run": {"precision": precision}},
        quantities=[
            one.document() for one in (P_ROBUST, LOG10_P_FAIL, LOSS, RADIUS, TOLERANCE, CERTIFIED)
        ],
        image_shape=None if shape is None else list(shape),
    )
    return Run(Path("run"), info, tuple(rows))


def exact(value: float, norm: str = "l2", name: str = "radius_exact", **others: Any) -> Row:
    return row("7", value, estimator=f"{name}:norm={norm}", **others)


def flip(value: float, norm: str = "l2", name: str = "radius_attack", **others: Any) -> Row:
    about = {
        "interval": Interval(IntervalKind.UPPER_BOUND),
        "lower": 0.0,
        "upper": value,
        "estimator": f"{name}:norm={norm}",
    }
    return row("7", value, **{**about, **others})


def proof(
    value: float,
    norm: str = "l2",
    of: int = 0,
    name: str = "margin_radius",
    stated: Certificate = UNSTATED,
    **others: Any,
) -> Row:
    """A certificate."""
    about = {
        "interval": Interval(IntervalKind.LOWER_BOUND),
        "lower": value,
        "upper": None,
        "quantity": CERTIFIED.name,
    }
    return row(
        "7",
        value,
        **{
            **about,
            "estimator": f"{name}:norm={norm}",
            "certificate": replace(stated, label=of),
            **others,
        },
    )


def votes(
    kept: int, draws: int, at: NoiseLevel = SIGMA, name: str = "mc", sample: str = "7"
) -> Row:
    lower, upper = (float(end) for end in clopper_pearson(kept, draws))
    interval = Interval(IntervalKind.CLOPPER_PEARSON)
    counts = Votes((kept, draws - kept))
    about = {
        "lower": lower,
        "upper": upper,
        "quantity": P_ROBUST.name,
        "interval": interval,
        "votes": counts,
        "estimator": name,
    }
    return row(sample, kept / draws, at, **about)


def rare(
    value: float,
    at: NoiseLevel = SIGMA,
    half: float = 0.1,
    kind: IntervalKind = IntervalKind.LOGNORMAL,
) -> Row:
    bound = kind is IntervalKind.UPPER_BOUND
    about = {
        "lower": None if bound else value - half,
        "upper": value if bound else value + half,
        "estimator": "splitting",
    }
    return row("7", value, at, quantity=LOG10_P_FAIL.name, interval=Interval(kind), **about)


def loss(
    value: float, q: float | None, half: float = 0.01, name: str = "qnorm_path", met: float = 0.0
) -> Row:
    if q is None:
        about: dict[str, Any] = {
            "interval": Interval(IntervalKind.LOWER_BOUND),
            "lower": value,
            "upper": None,
            "estimator": "adversarial_loss",
        }
    else:
        kind = Interval(IntervalKind.LOGNORMAL, remark="chains")
        about = {
            "interval": kind,
            "lower": value * math.exp(-half),
            "upper": value * math.exp(half),
            "estimator": f"{name}:q={q:g}",
        }
    return row("7", value, BOX, quantity=LOSS.name, loss=LossNorm(0, met), **about)


def tolerance(value: float, kept: float = 0.95, at: str = "gaussian") -> Row:
    about = {
        "lower": 0.99 * value,
        "upper": 1.01 * value,
        "interval": Interval(IntervalKind.OTHER, remark="order-statistics"),
    }
    return row(
        "7",
        value,
        NoiseLevel(at),
        quantity=TOLERANCE.name,
        estimator="noise_tolerance",
        search=Searched(p=kept),
        **about,
    )
