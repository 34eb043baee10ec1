"""Coverage of intervals made of counts: Clopper-Pearson, confidence sequences, images of audits
with a flag, means over images."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from robaudit.numerics.intervals import clopper_pearson, mean_interval
from robaudit.numerics.sequences import Floats, deciding_sequence
from tests.research.coverage.study import CASES, NOMINAL, PROBABILITIES, Line
from tests.unit.auditing.coins import flagged_coins
from tests.unit.numerics.martingales import deciding_log_martingale

FIXED = (64, 1000, 10_000)
HORIZON = 2000
FLAGS = (0.9, 0.5)
IMAGES = (48, 1000)


def fixed(p: float, cases: int = CASES) -> Iterator[Line]:
    """Clopper-Pearson at fixed numbers of draws."""
    generator = np.random.default_rng([1, round(1000 * p)])
    for n in FIXED:
        lower, upper = clopper_pearson(generator.binomial(n, p, cases), n)
        yield Line.of("clopper-pearson", f"mc, {n:,} draws", p, lower, upper, n)


def sequences(p: float, cases: int = CASES, horizon: int = HORIZON) -> Iterator[Line]:
    """Confidence sequences whose reader looks after *every* draw: a case is covered if the interval
    held the truth at all of them."""
    generator = np.random.default_rng([2, round(1000 * p)])
    s: Floats = np.cumsum(generator.random((cases, horizon)) < p, axis=1, dtype=np.float64)
    t: Floats = np.arange(1, horizon + 1, dtype=np.float64)
    last = s[:, -1]
    tested = _each(s, t, lambda s, f: deciding_log_martingale(s, f, p, 0.9))
    lower, upper = deciding_sequence(last, horizon - last, 0.9)
    held = np.all(tested < -np.log(1 - NOMINAL), axis=1)
    yield Line(
        "confidence-sequence",
        "to decide .9; checked after every draw",
        p,
        cases,
        float(held.mean()),
        float((upper - lower).mean()),
        horizon,
    )


def _each(s: Floats, t: Floats, log_martingale_of: Callable[[Floats, Floats], Floats]) -> Floats:
    """The function at every (S, F) of the paths, computed once for each pair that occurs."""
    pairs, place = np.unique(s * (t[-1] + 1) + t, return_inverse=True)
    s, t = np.divmod(pairs, t[-1] + 1)
    return log_martingale_of(s, t - s)[place.reshape(-1)].reshape(place.shape)


def flagged(p: float, cases: int = CASES) -> Iterator[Line]:
    """Images of audits with a flag: a case is covered if the intervals of all its rounds held the
    truth; the width is the final one."""
    for k, flag in enumerate(FLAGS):
        found = flagged_coins(p, flag, 1000, cases, [3, k, round(1000 * p)])
        yield Line(
            "confidence-sequence",
            f"mc, flag {flag:g}; checked after every round",
            p,
            cases,
            float(found.held.mean()),
            float((found.upper - found.lower).mean()),
            float(found.draws.mean()),
        )


def means(p: float, cases: int = CASES) -> Iterator[Line]:
    """The interval of a mean over images, whose values are 0 and 1 (the worst) or spread over [0,
    1]."""
    generator = np.random.default_rng([4, round(1000 * p)])
    for n in IMAGES:
        for name in ("0 or 1", "spread"):
            x = (
                generator.random((cases, n)) < p
                if name == "0 or 1"
                else generator.beta(2 * p, 2 * (1 - p), (cases, n))
            )
            ends = np.array([mean_interval(row, 0.0, 1.0) for row in x])
            yield Line.of("mean over images", f"{n:,} values, {name}", p, ends[:, 0], ends[:, 1], n)


def lines(cases: int = CASES) -> Iterator[Line]:
    """All of them."""
    for part in (fixed, sequences, flagged, means):
        for p in PROBABILITIES:
            yield from part(p, cases)
