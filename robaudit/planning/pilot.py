"""What do a few images and a few seconds say of every estimator's time and error?

Two independent runs of ``logit_gaussian`` say how much its values scatter; their mean is the reference for the estimators whose
error does not fall with draws, and votes of a third stream check it. Where the check finds nothing beyond two standard errors, the
errors that were measured on seven networks (docs/estimators.md) stand for what a pilot is too short to see.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robaudit.auditing import Ready
from robaudit.datasets.select import Selected
from robaudit.estimators.base import Estimator
from robaudit.estimators.logit_gaussian import LogitGaussian
from robaudit.estimators.mc import MonteCarlo
from robaudit.planning.chance import KNOWN_BIAS, KNOWN_ERROR, beyond, honest, significant
from robaudit.planning.families import Family, Law, by_tolerance, doubling
from robaudit.planning.levels import DRAWS, FEW, LONG, Level, binomial, few, mc_times, measure_level, refuse_too_few, times
from robaudit.planning.others import others_of, try_others
from robaudit.planning.trials import Trial, trial

_FEWEST, _MOST = 8, 256
_WIDE, _LEAST_WIDE = 0.4, 0.15  # of the pilot, for votes on more images
_QUICK = 0.25  # seconds
_LOOK = 0.3  # of the pilot, for a look at the time
_TRIALS = 5.0  # in units of logit_gaussian with 32 draws: what an image of the pilot costs
_OTHERS, _LEAST_OTHERS = 0.3, 1.0  # of the pilot, and seconds at least, for what else the spec names


@dataclass(frozen=True, slots=True)
class Pilot:
    """What it found.

    Attributes:
        families: the estimators to choose from.
        images: how many it looked at.
        touched: of them, those whose value is strictly between .001 and .999 at some noise level.
        seconds: how long it took.
        notes: which estimators of the spec were left out, and why.
    """

    families: Sequence[Family]
    images: int
    touched: int
    seconds: float
    notes: Sequence[str] = ()


def pilot(ready: Ready, seconds: float, *, skip_bad: bool = False) -> Pilot:
    """Run it.

    Args:
        ready: the audit.
        seconds: about how long it may take.
        skip_bad: leave unusable samples out.

    Raises:
        RobauditError: fewer than two images, or usable ones: nothing says how much they differ.
    """
    refuse_too_few(ready, len(ready.samples))
    started, spec = time.perf_counter(), ready.spec
    sigmas = spec.noise.sigma
    look = LogitGaussian(samples=DRAWS)
    trial(ready, few(ready, FEW), look, sigmas[0], "warm", skip_bad=skip_bad)
    overhead, once = _first_times(ready, look, sigmas[0], _LOOK * seconds, skip_bad)
    of_mc, _ = _first_times(ready, MonteCarlo(samples=DRAWS), sigmas[0], _LOOK / 3 * seconds, skip_bad)

    def try_(on: Selected, estimator: Estimator, sigma: float, stream: str) -> Trial:
        constant = of_mc if type(estimator) is MonteCarlo else overhead
        return trial(ready, on, estimator, sigma, stream, overhead=constant, skip_bad=skip_bad)

    reserved = max(_OTHERS * seconds, _LEAST_OTHERS) if others_of(ready) else 0.0
    left = seconds - min(reserved, _OTHERS * seconds) - (time.perf_counter() - started)
    cost = once * len(sigmas) * _TRIALS
    images = few(ready, int(max(_FEWEST, min(_MOST, (1 - _WIDE) * left / cost))))
    levels = {sigma: measure_level(ready, try_, images, sigma, max(_WIDE * left, _LEAST_WIDE * seconds) / len(sigmas)) for sigma in sigmas}
    values = np.stack([level.value for level in levels.values()])
    others = try_others(ready, try_, images, levels, reserved)
    touched = int(((values > 0.001) & (values < 0.999)).any(0).sum())
    return Pilot([*_sampled(levels), *others.families], values.shape[1], touched, time.perf_counter() - started, others.notes)


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
        squared = max(squared, bias**2)  # no image errs less than their mean
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
