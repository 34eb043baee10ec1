"""What do a few images and a few seconds say of every estimator's time and error?

Two independent runs of ``logit_gaussian`` say how much its values scatter; their mean is the reference for the estimators whose
error does not fall with draws, and votes of a third stream check it. Where the check finds nothing beyond two standard errors, the
errors that were measured on seven networks (docs/estimators.md) stand for what a pilot is too short to see.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from robaudit.auditing import Ready
from robaudit.datasets.select import Selected
from robaudit.estimators.base import P_ROBUST, Estimator
from robaudit.estimators.logit_gaussian import LogitGaussian
from robaudit.estimators.mc import MonteCarlo
from robaudit.estimators.mmse import Mmse
from robaudit.planning.chance import KNOWN_BIAS, KNOWN_ERROR, beyond, doubted, honest, significant
from robaudit.planning.families import Family, Law, by_tolerance, doubling, fixed
from robaudit.planning.levels import DRAWS, FEW, LONG, Level, binomial, few, mc_times, measure_level, quarter, times
from robaudit.planning.trials import Trial, trial

_SHORT_MMSE, _LONG_MMSE = 4, 12
_FEWEST, _MOST = 8, 256
_WIDE, _LEAST_WIDE = 0.4, 0.15  # of the pilot, for votes on more images
_QUICK = 0.25  # seconds
_LOOK = 0.3  # of the pilot, for a look at the time
_TRIALS = 5.0  # in units of logit_gaussian with 32 draws: what an image of the pilot costs
_MMSE_TRIALS = 20.0


@dataclass(frozen=True, slots=True)
class Pilot:
    """What it found.

    Attributes:
        families: the estimators to choose from.
        images: how many it looked at.
        touched: of them, those whose value is strictly between .001 and .999 at some noise level.
        seconds: how long it took.
    """

    families: Sequence[Family]
    images: int
    touched: int
    seconds: float


def pilot(ready: Ready, seconds: float, *, skip_bad: bool = False) -> Pilot:
    """Run it.

    Args:
        ready: the audit.
        seconds: about how long it may take.
        skip_bad: leave unusable samples out.
    """
    started, spec = time.perf_counter(), ready.spec
    sigmas = spec.noise.sigma
    look = LogitGaussian(samples=DRAWS)
    trial(ready, few(ready, FEW), look, sigmas[0], "warm", skip_bad=skip_bad)
    overhead, once = _first_times(ready, look, sigmas[0], _LOOK * seconds, skip_bad)
    of_mc, _ = _first_times(ready, MonteCarlo(samples=DRAWS), sigmas[0], _LOOK / 3 * seconds, skip_bad)

    def try_(on: Selected, estimator: Estimator, sigma: float, stream: str) -> Trial:
        constant = of_mc if type(estimator) is MonteCarlo else overhead
        return trial(ready, on, estimator, sigma, stream, overhead=constant, skip_bad=skip_bad)

    mmse = any(type(task.chosen.estimator) is Mmse for task in ready.tasks)
    cost = once * len(sigmas) * (_TRIALS + _MMSE_TRIALS * mmse / 4)
    left = seconds - (time.perf_counter() - started)
    images = few(ready, int(max(_FEWEST, min(_MOST, (1 - _WIDE) * left / cost))))
    levels = {sigma: measure_level(ready, try_, images, sigma, max(_WIDE * left, _LEAST_WIDE * seconds) / len(sigmas)) for sigma in sigmas}
    values = np.stack([level.value for level in levels.values()])
    families = [*_sampled(levels), *_others(ready, try_, images, levels)]
    touched = int(((values > 0.001) & (values < 0.999)).any(0).sum())
    return Pilot(families, values.shape[1], touched, time.perf_counter() - started)


def _first_times(ready: Ready, look: Estimator, sigma: float, seconds: float, skip_bad: bool) -> tuple[float, float]:
    """Seconds that any trial takes, and seconds of an image: from trials of 4, 16, 64, ... images, as long as these seconds allow."""
    walls: list[tuple[int, float]] = []
    for count in (FEW * 4**i for i in range(4)):
        some = few(ready, count)
        walls.append((len(some), trial(ready, some, look, sigma, "time", skip_bad=skip_bad).seconds * len(some)))
        quick = len(walls) == 1 and walls[0][1] < _QUICK  # what any trial takes may be most of it
        if (4 * walls[-1][1] > seconds and not quick) or len(some) < count:
            break
    images, wall = walls[-1]
    if len(walls) == 1 or walls[-2][0] == images:
        return 0.0, wall / images
    fewer, short = walls[-2]
    once = max(0.1 * wall / images, (wall - short) / (images - fewer))
    return max(0.0, wall - once * images), once


def _sampled(levels: dict[float, Level]) -> list[Family]:
    """logit_gaussian, with draws and with a tolerance, and mc."""
    gaussian, monte_carlo, spreads, honesty = {}, {}, {}, {}
    for sigma, level in levels.items():
        each, once = times(level.a.seconds, level.slow.seconds, DRAWS, LONG)
        off = level.value - level.votes.values
        squared = beyond(off**2, binomial(level.votes.values, DRAWS) + level.noise / 2, KNOWN_ERROR**2)
        bias = significant(off, KNOWN_BIAS)
        stated = (np.nan_to_num(level.a.variances) + np.nan_to_num(level.b.variances)) / 2
        honesty[sigma] = honest(level.noise / max(1e-12, float(stated.mean())), len(stated))
        noise = honesty[sigma] * float(stated.mean())
        gaussian[sigma] = Law(once, each, noise * level.scale * DRAWS, squared, bias, level.between)
        each, once = mc_times(level)
        monte_carlo[sigma] = Law(once, each, level.flips, 0.0, 0.0, level.between)
        spreads[sigma] = stated * DRAWS * level.scale
    return [
        doubling("logit_gaussian", gaussian, 16, 4096, 16),
        by_tolerance(gaussian, spreads, honesty),
        doubling("mc", monte_carlo, 16, 10**6, 1),
    ]


def _others(ready: Ready, try_: Callable[..., Trial], images: Selected, levels: dict[float, Level]) -> list[Family]:
    """What else the spec names: mmse with its draws, the others as they are."""
    chosen = dict.fromkeys(task.chosen for task in ready.tasks)
    entries = {one.label: entry for one, entry in zip(chosen, ready.spec.estimators, strict=True)}
    some = quarter(images)
    found = []
    for one in chosen:
        estimator = one.estimator
        if estimator.quantity.name != P_ROBUST.name or type(estimator) in (MonteCarlo, LogitGaussian):
            continue

        def run(sigma: float, stream: str, which: Estimator = estimator) -> Trial:
            return try_(some, which, sigma, stream)

        if type(estimator) is Mmse:
            found.append(doubling(one.name, {sigma: _mmse(run, level, sigma) for sigma, level in levels.items()}, 2, 1024, 2))
            continue
        laws = {}
        for sigma, level in levels.items():
            t = run(sigma, "a")
            off = t.values - level.value[: len(t.values)]
            squared = doubted(off**2, level.noise / 2)
            laws[sigma] = Law(t.seconds, 0.0, 0.0, squared, float(off.mean()), level.between)
        found.append(fixed(one.name, one.label, laws, entries[one.label].options))
    return found


def _mmse(run: Callable[..., Trial], level: Level, sigma: float) -> Law:
    short, long = (run(sigma, "a", Mmse(samples=n)) for n in (_SHORT_MMSE, _LONG_MMSE))
    each, once = times(short.seconds, long.seconds, _SHORT_MMSE, _LONG_MMSE)
    again = run(sigma, "b", Mmse(samples=_SHORT_MMSE))
    noise = float(np.mean((short.values - again.values) ** 2)) / 2
    off = (short.values + again.values) / 2 - level.value[: len(short.values)]
    squared = doubted(off**2, (noise + level.noise) / 2)
    return Law(once, each, noise * _SHORT_MMSE, squared, significant(off, KNOWN_BIAS), level.between)
