"""Coverage of intervals made of counts: Clopper-Pearson, confidence sequences, adaptive `mc`, means
over images."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from robaudit.methods.average_case.mc import StoppingRule, draw_until_stopped
from robaudit.numerics.intervals import clopper_pearson, mean_interval
from robaudit.numerics.sequences import Floats, Prior, confidence_sequence, deciding_sequence
from tests.research.coverage.study import CASES, NOMINAL, PROBABILITIES, Line
from tests.unit.methods.average_case.test_adaptive import coin
from tests.unit.numerics.martingales import deciding_log_martingale, log_martingale

FIXED = (64, 1000, 10_000)
HORIZON = 2000
RULES = {
    "tolerance .02": StoppingRule(0.02, None, 100_000),
    "decide .9": StoppingRule(None, 0.9, 20_000),
    "decide .5": StoppingRule(None, 0.5, 20_000),
}
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
    yield _ever(
        "Jeffreys' prior",
        p,
        _each(s, t, lambda s, f: log_martingale(s, f, p)),
        *confidence_sequence(last, horizon - last),
    )
    tested = _each(s, t, lambda s, f: deciding_log_martingale(s, f, p, 0.9))
    yield _ever("to decide .9", p, tested, *deciding_sequence(last, horizon - last, 0.9))
    learned = horizon // 10
    seen = s[:, learned - 1 : learned]
    prior = Prior((1.0,), (0.5 + seen,), (0.5 + learned - seen,))
    s = s[:, learned:] - seen
    t = t[:-learned]
    ends = confidence_sequence(s[:, -1:], t[-1] - s[:, -1:], prior=prior)
    yield _ever(
        f"prior learned from the first {learned}", p, log_martingale(s, t - s, p, prior), *ends
    )


def _each(s: Floats, t: Floats, log_martingale_of: Callable[[Floats, Floats], Floats]) -> Floats:
    """The function at every (S, F) of the paths, computed once for each pair that occurs."""
    pairs, place = np.unique(s * (t[-1] + 1) + t, return_inverse=True)
    s, t = np.divmod(pairs, t[-1] + 1)
    return log_martingale_of(s, t - s)[place.reshape(-1)].reshape(place.shape)


def _ever(name: str, p: float, log_martingales: Floats, lower: Floats, upper: Floats) -> Line:
    """A line from log M_t(p) of every path at every draw, and the intervals at the end."""
    cases, draws = log_martingales.shape
    held = np.all(log_martingales < -np.log(1 - NOMINAL), axis=1)
    setting = f"{name}; checked after every draw"
    return Line(
        "confidence-sequence",
        setting,
        p,
        cases,
        float(held.mean()),
        float((upper - lower).mean()),
        draws,
    )


def adaptive(p: float, cases: int = CASES) -> Iterator[Line]:
    """The printed interval of images that adaptive `mc` has stopped."""
    for k, (name, rule) in enumerate(RULES.items()):
        found = draw_until_stopped(rule, [0] * cases, coin(p, [3, k, round(1000 * p)]))
        ends = np.array([(one.lower, one.upper) for one in found], dtype=np.float64)
        yield Line.of(
            "confidence-sequence",
            f"mc, {name}",
            p,
            ends[:, 0],
            ends[:, 1],
            [one.forwards - 1 for one in found],
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
    for part in (fixed, sequences, adaptive, means):
        for p in PROBABILITIES:
            yield from part(p, cases)
