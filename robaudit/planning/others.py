"""What else does a spec name, and what does each give and cost, tried within a limited time?"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from robaudit.auditing import Ready
from robaudit.datasets.select import Selected
from robaudit.estimators.base import Estimator
from robaudit.estimators.logit_gaussian import LogitGaussian
from robaudit.estimators.mc import MonteCarlo
from robaudit.estimators.mmse import Mmse
from robaudit.estimators.registry import Chosen, Task
from robaudit.planning.chance import KNOWN_BIAS, doubted, significant
from robaudit.planning.families import Family, Law, doubling, fixed
from robaudit.planning.levels import FEW, Level, quarter, times
from robaudit.planning.limits import grown
from robaudit.planning.trials import Trial
from robaudit.quantities import P_ROBUST

_SHORT_MMSE, _LONG_MMSE = 4, 12

Try = Callable[[Selected, Estimator, float, str], Trial]


@dataclass(frozen=True, slots=True)
class Others:
    """What was found.

    Attributes:
        families: of the estimators that could be tried.
        notes: which could not, and why.
    """

    families: Sequence[Family]
    notes: Sequence[str]


def others_of(ready: Ready) -> list[Chosen]:
    """The estimators of p_robust that the spec names, without mc and logit_gaussian, those that say they are cheap first."""
    found = [
        one
        for one in dict.fromkeys(task.chosen for task in ready.tasks)
        if one.estimator.quantity.name == P_ROBUST.name and type(one.estimator) not in (MonteCarlo, LogitGaussian)
    ]
    return sorted(found, key=lambda one: Task(0.0, one).cost(ready.engine.classes))


def try_others(ready: Ready, try_: Try, images: Selected, levels: dict[float, Level], seconds: float) -> Others:
    """Hold each against the levels' values: mmse with its draws, the others as they are.

    Each starts with one image and goes on to a quarter of them, as far as its share of the time allows. Four images may take half
    of the time that is left for all; an estimator that takes longer, or that has time for fewer than four images, is
    left out.

    Args:
        ready: the audit.
        try_: runs an estimator on images at a noise level, with the noise of a stream.
        images: those of the levels.
        levels: by noise level.
        seconds: for all of them together.
    """
    end, some = time.perf_counter() + seconds, quarter(_usable(images, levels))
    names = list(dict.fromkeys(task.chosen for task in ready.tasks))
    options = {one.label: entry.options for one, entry in zip(names, ready.spec.estimators, strict=True)}
    families, notes, chosen = [], [], others_of(ready)
    for i, one in enumerate(chosen):
        laws, reason = {}, ""
        for j, (sigma, level) in enumerate(levels.items()):
            left = max(0.0, end - time.perf_counter())
            share, limit = left / ((len(chosen) - i) * len(levels) - j), left / 2

            def attempt(count: int, which: Estimator = one.estimator, sigma: float = sigma, level: Level = level) -> Law:
                def run(stream: str, other: Estimator = which) -> Trial:
                    found = try_(Selected(some, range(count)), other, sigma, stream)
                    if len(found.values) < count:
                        raise _NoValueError
                    return found

                return _mmse(run, level) if type(which) is Mmse else _as_it_is(run("a"), level)

            try:
                found = grown(ready.engine.model, attempt, len(some), max(share, limit), share)
            except _NoValueError:
                reason = "it gives no number for some images"
                break
            if found is None:
                reason = f"one image takes longer than the {limit:.2g} s that are left to try it"
                break
            if found[1] < min(FEW, len(some)):  # one that happens to be untouched by noise would flatter any estimator
                reason = f"only {found[1]} of {FEW} images could be tried in the time there is, too few to judge it by"
                break
            laws[sigma] = found[0]
        if len(laws) < len(levels):
            notes.append(f"{one.label} is left out: {reason}")
            continue
        if type(one.estimator) is Mmse:
            families.append(doubling(one.name, laws, 2, 1024, 2))
        else:
            families.append(fixed(one.name, one.label, laws, options[one.label]))
    return Others(families, notes)


class _NoValueError(Exception):
    """Unusable samples are left out, and this estimator finds one that the others do not."""


def _usable(images: Selected, levels: dict[float, Level]) -> Selected:
    """Those with a value at every noise level, in the order of the levels' values."""
    ids = set.intersection(*(set(level.a.ids) for level in levels.values()))
    return Selected(images, [i for i in range(len(images)) if images.sample_id(i) in ids])


def _as_it_is(t: Trial, level: Level) -> Law:
    off = t.values - level.value[: len(t.values)]
    bias = float(off.mean())
    return Law(t.seconds, 0.0, 0.0, max(bias**2, doubted(off**2, level.noise / 2)), bias, level.between)


def _mmse(run: Callable[..., Trial], level: Level) -> Law:
    short, long = (run("a", Mmse(samples=n)) for n in (_SHORT_MMSE, _LONG_MMSE))
    each, once = times(short.seconds, long.seconds, _SHORT_MMSE, _LONG_MMSE)
    again = run("b", Mmse(samples=_SHORT_MMSE))
    noise = float(np.mean((short.values - again.values) ** 2)) / 2
    off = (short.values + again.values) / 2 - level.value[: len(short.values)]
    bias = significant(off, KNOWN_BIAS)
    squared = max(bias**2, doubted(off**2, (noise + level.noise) / 2))
    return Law(once, each, noise * _SHORT_MMSE, squared, bias, level.between)
