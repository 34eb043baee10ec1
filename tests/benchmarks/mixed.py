"""Would few fp32 passes make the votes of many bf16 passes honest? ``python -m tests.benchmarks.mixed`` prints what an interval costs.

N copies are counted in bf16, of which K keep the class; some of those that keep it, and some of those that do not, are passed again in
fp32, where D of m change sides. With q = P[bf16 keeps] and a = P[fp32 keeps | bf16 does not], p = P[fp32 keeps] <= q + (1 - q) a, and the
lower end is the same for what fails. K is Binomial(N, q), and given the bf16 votes D is Binomial(m, a). So under the truth each of
-ln P[K' <= K | q] and -ln P[D' <= D | a] is at most a standard exponential variable, the second whatever the first is, and the first plus
w times the second exceeds c with a probability of at most (e^-c - w e^(-c/w)) / (1 - w), .025 here. The upper end is the largest
q + (1 - q) a that stays below c: exact for fixed numbers of passes, for any w in (0, 1).

Sources: Giles 2008 (two levels with the same noise); Fisher 1932 and Good 1955 (weighted sums of log p-values).
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv

from robaudit.numerics.intervals import clopper_pearson

TAIL = 0.025
WEIGHTS = tuple(round(0.1 * i, 1) for i in range(1, 10))
FACTORS = (1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.6, 1.8, 2.2)


def critical(weight: float) -> float:
    """c for a weight w."""
    return float(brentq(lambda c: (np.exp(-c) - weight * np.exp(-c / weight)) / (1 - weight) - TAIL, 3, 12))


CRITICAL = {weight: critical(weight) for weight in WEIGHTS}


def upper(kept: int, draws: int, moved: int, checked: int, weight: float) -> float:
    """The upper end for p: of the copies not kept, ``checked`` were passed again and ``moved`` of them keep the class in fp32."""
    if kept == draws or not checked or moved == checked:
        return 1.0
    second = np.linspace(0, CRITICAL[weight], 400)  # what the second term takes of c
    q = betaincinv(kept + 1, draws - kept, -np.expm1(second - CRITICAL[weight]))
    a = betaincinv(moved + 1, checked - moved, -np.expm1(-second / weight))
    return float((q + (1 - q) * a).max())


def width(kept: int, draws: int, share: float, changes: float, weight: float) -> float:
    """Of the interval, if a share of the copies is passed again and so many of these change sides."""
    sides = ((kept, draws - kept), (draws - kept, kept))
    return sum(upper(k, draws, round(changes * int(share * of)), int(share * of), weight) for k, of in sides) - 1.0


def cost(copies: int, p: float, speed: float, changes: float = 0.0) -> float:
    """Fewest passes, as a share of ``copies`` in fp32, whose expected interval is no wider than Clopper-Pearson's of these.

    Args:
        copies: in fp32.
        p: P[kept].
        speed: bf16 passes in the time of one in fp32.
        changes: share of the copies that change sides.
    """
    lower, most = clopper_pearson(round(copies * p), copies)
    wanted, best = float(most - lower), 1.0
    for factor in FACTORS:
        draws = int(copies * factor)
        for weight in WEIGHTS:
            if factor / speed >= best or width(round(draws * p), draws, 1.0, changes, weight) > wanted:
                continue
            few, many = 0.0, 1.0
            for _ in range(12):
                share = (few + many) / 2
                few, many = (few, share) if width(round(draws * p), draws, share, changes, weight) <= wanted else (share, many)
            best = min(best, factor / speed + many * factor)
    return best


def coverage(p: float, changes: float, draws: int, share: float, weight: float, cases: int = 2000) -> float:
    """How often the interval holds p in simulated cases, if as many copies change sides either way."""
    generator, held = np.random.default_rng([round(1000 * p), draws]), 0
    for _ in range(cases):
        kept = int(generator.binomial(draws, p))
        checked = [int(share * of) for of in (draws - kept, kept)]
        moved = [int(generator.binomial(m, changes / of)) for m, of in zip(checked, (1 - p, p), strict=True)]
        ends = 1 - upper(draws - kept, draws, moved[1], checked[1], weight), upper(kept, draws, moved[0], checked[0], weight)
        held += ends[0] <= p <= ends[1]
    return held / cases


def main() -> None:
    """Print costs, and coverage."""
    for speed in (2.75, 8.0):
        for changes in (0.0, 0.001):
            for copies in (1000, 10_000, 100_000):
                found = " ".join(f"{cost(copies, p, speed, changes):.2f}" for p in (0.5, 0.9, 0.99, 0.999, 1.0))
                sys.stdout.write(f"bf16 {speed} times as fast, {changes:.1%} change sides, {copies:,} copies: {found}\n")
    for p in (0.5, 0.9, 0.99):
        covered = " ".join(f"{coverage(p, changes, 2000, 0.2, 0.5):.3f}" for changes in (0.0, 0.001, 0.005))
        sys.stdout.write(f"coverage at p = {p}, 2,000 copies, a fifth of them again, none, .1 % and .5 % change sides: {covered}\n")


if __name__ == "__main__":
    main()
