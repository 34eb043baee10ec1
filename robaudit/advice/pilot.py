"""Short trials of the estimators on a few images: time and error per image, by the number of draws."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from robaudit.auditing.prepare import Ready
from robaudit.auditing.run import compute
from robaudit.auditing.setup import on_stream
from robaudit.datasets.select import Selected, random_subset
from robaudit.errors import RobauditError
from robaudit.estimators import registry
from robaudit.estimators.base import Estimator
from robaudit.estimators.registry import Chosen, Task, tasks_at
from robaudit.levels import NoiseLevel
from robaudit.progress import Silent
from robaudit.quantities import P_ROBUST
from robaudit.rows import Row

ALWAYS = "mc", "logit_gaussian"
"""Estimators that are always tried; the others are compared with the first."""

SHORT, LONG = 16, 64
"""Draws of the two trials of an estimator."""

FEW = 4
"""Fewest images that an estimator is judged by."""

_MOST_IMAGES, _GROWTH, _QUICK = 512, 4, 0.25  # a trial of up to 4 images that takes less than 0.25 s is followed by one of 4 times as many
_MOST_DRAWS, _MOST_DRAWS_OF_OTHERS = 2**20, 2**12
_OTHERS, _LEAST_OTHERS = 0.3, 1.0  # share of the pilot, and fewest seconds, for the other estimators of the spec

Floats = NDArray[np.float64]
Rows = Mapping[tuple[str, NoiseLevel], Row]
"""By (sample id, noise level)."""


@dataclass(frozen=True, slots=True)
class Level:
    """Errors of one estimator at one noise level: with n draws, the mean squared error per image is systematic + spread / n.

    Attributes:
        spread: variance of an image's value times its draws (with draws 0: the variance); 0 where no standard error is stated.
        systematic: mean squared error that more draws do not remove.
        bias: absolute mean error that more draws do not remove.
        between: variance of the true values over the images.
    """

    spread: float
    systematic: float
    bias: float
    between: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """An estimator that a plan may choose.

    Attributes:
        chosen: its name and label.
        settings: numbers of draws and the estimator with each, fewest first; draws 0: as the spec has it.
        fixed, each: an image takes fixed + each * draws seconds, at all noise levels together.
        levels: its errors, by noise level.
    """

    chosen: Chosen
    settings: Sequence[tuple[int, Estimator]]
    fixed: float
    each: float
    levels: Sequence[Level] = ()

    def seconds(self, n: int) -> float:
        """Time of one image with n draws, at all noise levels."""
        return self.fixed + self.each * n

    def error(self, n: int) -> float:
        """RMSE of an image's value, at the worst noise level."""
        return math.sqrt(max(level.systematic + level.spread / max(1, n) for level in self.levels))

    def error_of_mean(self, n: int, images: int, *, sampled: bool) -> float:
        """Standard error of the mean over ``images`` images, at the worst noise level; ``sampled``: including the choice of images."""
        return math.sqrt(max((sampled * one.between + one.spread / max(1, n)) / images + one.bias**2 for one in self.levels))


@dataclass(frozen=True, slots=True)
class Trial:
    """An estimator on a few images: the rows with ``draws`` draws (0: as the spec has it); unusable images have none."""

    candidate: Candidate
    ids: Sequence[str]
    rows: Rows
    draws: int

    @property
    def finite(self) -> set[str]:
        """Ids of the images with a finite value at every noise level."""
        return {name for name, _ in self.rows} - {name for (name, _), row in self.rows.items() if not math.isfinite(row.value)}


@dataclass(frozen=True, slots=True)
class Pilot:
    """The trials of all estimators.

    Attributes:
        candidates: the estimators to choose from.
        images: number of usable images that mc was tried on.
        affected: of them, those for which some noisy copies changed class and others did not, at some noise level.
        seconds: how long the trials took.
        notes: which estimators of the spec were left out, and why.
    """

    candidates: Sequence[Candidate]
    images: int
    affected: int
    seconds: float
    notes: Sequence[str]


def pilot(ready: Ready, seconds: float, *, skip_bad: bool = False) -> Pilot:
    """Try mc, logit_gaussian and the spec's other estimators of p_robust.

    Args:
        ready: the audit.
        seconds: about how long it may take.
        skip_bad: leave unusable samples out.

    Raises:
        RobauditError: fewer than two usable images, which do not show how much images differ.
    """
    started = time.perf_counter()
    _refuse_too_few(ready, len(ready.samples))
    named = list(dict.fromkeys(task.chosen for task in ready.tasks))
    others = [one for one in named if one.estimator.quantity.name == P_ROBUST.name and one.name not in ALWAYS and not one.estimator.noise]
    several = [one for one in others if one.estimator.parts]
    others = [one for one in others if one not in several]
    others.sort(key=lambda one: Task(ready.spec.levels[0], one).cost(ready.engine.classes))
    share = seconds * (1 - (_OTHERS if others else 0.0)) / len(ALWAYS)
    trials: list[Trial] = []
    for name in ALWAYS:
        one = next((one for one in named if one.name == name and not one.estimator.noise), Chosen(name, name, registry.load(name)()))
        trials += filter(None, [_try(ready, one, share, math.inf, skip_bad=skip_bad)])
        _refuse_too_few(ready, len(trials[0].finite & trials[-1].finite))
    votes = trials[0]
    notes = [f"{one.label} is left out: it is limited to some of the noises" for one in named if one.estimator.noise]
    notes += [f"{one.label} is left out: it gives several values of each image" for one in several]
    end = time.perf_counter() + max(_OTHERS * seconds, _LEAST_OTHERS)
    for i, one in enumerate(others):
        left = max(0.0, end - time.perf_counter())
        trial = _try(ready, one, left / (len(others) - i), left / 2, skip_bad=skip_bad)
        if trial is None:
            reason = f"one image takes longer than the {left / 2:.2g} s left to try it"
        elif len(trial.ids) < min(FEW, len(ready.samples)):  # on a single image that noise does not affect, any estimator looks good
            reason = f"only {len(trial.ids)} of {FEW} images could be tried in the available time, too few to judge it by"
        elif len(usable := votes.finite.intersection(trial.ids)) < 2 or not usable <= trial.finite:
            reason = "it gives no finite value for some images"
        else:
            trials.append(trial)
            continue
        notes.append(f"{one.label} is left out: {reason}")
    levels = ready.spec.levels
    return Pilot(
        candidates=[replace(one.candidate, levels=[errors_at(one, votes, at) for at in levels]) for one in trials],
        images=len(votes.finite),
        affected=len({name for (name, _), row in votes.rows.items() if 0 < row.value < 1}),
        seconds=time.perf_counter() - started,
        notes=notes,
    )


def run_on(ready: Ready, count: int, estimator: Estimator, stream: str, *, skip_bad: bool) -> tuple[Rows, float]:
    """Rows of a few images at all noise levels, with the noise of a named stream, and the seconds they took."""
    engine = on_stream(ready.engine, ready.noises, ready.spec.run.seed, f"pilot {stream}")
    tasks = tasks_at(ready.spec.levels, [Chosen("trial", "trial", estimator)])
    started = time.perf_counter()
    computed = compute(ready, engine, _few(ready, count), tasks, Silent(), on_error="skip" if skip_bad else "stop")
    spent = time.perf_counter() - started
    return {(name, at): row for (name, at, _), row in computed.rows.items()}, spent


def _few(ready: Ready, count: int) -> Selected:
    """``count`` random images, drawn with the run's seed; a smaller selection is part of every larger one."""
    return Selected(ready.samples, random_subset(len(ready.samples), min(count, len(ready.samples)), ready.spec.run.seed))


def _refuse_too_few(ready: Ready, images: int) -> None:
    if images < 2:
        raise RobauditError(ready.samples.where, f"a plan needs 2 usable images, and there is {images or 'none'}", "give it more")


def _settings(chosen: Chosen) -> list[tuple[int, Estimator]]:
    """An estimator with 16 draws and more, each number about 2^(1/4) times the previous one; unchanged where it has no such option."""
    most = _MOST_DRAWS if chosen.name == ALWAYS[0] else _MOST_DRAWS_OF_OTHERS
    settings: dict[int, Estimator] = {}
    for i in range(4 * int(math.log2(SHORT)), 4 * int(math.log2(most)) + 1):
        first = round(2 ** (i / 4))
        possible = ((draws, chosen.estimator.with_draws(draws)) for draws in range(first, first + SHORT))
        settings |= next(({draws: one} for draws, one in possible if one is not None), {})
    return sorted(settings.items()) or [(0, chosen.estimator)]


def _try(ready: Ready, chosen: Chosen, seconds: float, limit: float, *, skip_bad: bool) -> Trial | None:
    """Try an estimator with few draws on 1, 4, 16, ... images for up to a quarter of the time, then on the same images with more draws.

    The fixed cost of a trial, however few its images, is the same in the last two and cancels in their difference.

    Args:
        ready: the audit.
        chosen: the estimator.
        seconds: about how long it may take.
        limit: seconds for the trials with up to four images.
        skip_bad: leave unusable samples out.

    Returns:
        None where the first image takes longer than the limit.
    """
    settings = _settings(chosen)
    (draws, estimator), most = settings[0], min(_MOST_IMAGES, len(ready.samples))
    started, quarter, images, count = time.perf_counter(), max(_QUICK, seconds / 4), 0, 1
    rows: Rows = {}
    while count:
        left = (limit if count <= FEW else max(quarter, 4 * _QUICK)) - (time.perf_counter() - started)
        try:
            with within(left):
                rows, short = run_on(ready, count, estimator, chosen.name, skip_bad=skip_bad)
        except TooLongError:
            break
        images, left = count, (limit if count < FEW else quarter) - (time.perf_counter() - started)
        more = int(min(most, _GROWTH * count, left * count / short))
        if count <= FEW and short < _QUICK:
            more = min(most, _GROWTH * count)
        count = more if more > count and more >= min(most, 2 * count) else 0
    if not images:
        return None
    some = _few(ready, images)
    ids = [some.sample_id(i) for i in range(len(some))]
    if not draws:
        return Trial(Candidate(chosen, settings, short / images, 0.0), ids, rows, 0)
    fixed = each = short / images / (draws + 1)  # where passes are too slow for a second trial, only they count
    longer, estimator = min(settings, key=lambda setting: abs(setting[0] - LONG))
    if short * longer / draws <= 2 * _GROWTH * quarter:
        rows, long = run_on(ready, images, estimator, f"{chosen.name} longer", skip_bad=skip_bad)
        each = max((long - short) / (longer - draws), 0.2 * long / longer) / images
        fixed, draws = max(0.0, short / images - each * draws), longer
    return Trial(Candidate(chosen, settings, fixed, each), ids, rows, draws)


def errors_at(trial: Trial, votes: Trial, at: NoiseLevel) -> Level:
    """Errors of an estimator at one noise level.

    Those of mc follow from the binomial distribution: p (1 - p) / n. Another estimator's variance is that of its stated standard errors;
    the part of its squared differences from mc beyond both variances is its systematic error, where that is significant (two standard
    errors). An estimator without standard errors gets one standard error of that part added instead, and no estimator is credited with
    less bias than so few images would reveal.

    Args:
        trial: the estimator's.
        votes: the trial of mc, on the same or other images.
        at: the noise level.
    """
    p, n = {name: row.value for (name, level), row in votes.rows.items() if level == at}, votes.draws
    shares = np.array(list(p.values()))
    flips = max(_binomial(shares, n), 1 / (n * len(shares)))  # where no copy flipped, as if one had
    between = max(0.0, float(np.var(shares, ddof=1)) - flips / n)
    if trial is votes:
        return Level(flips, 0.0, 0.0, between)
    rows = [row for (name, level), row in trial.rows.items() if level == at and name in p and math.isfinite(row.value)]
    known = np.array([p[row.sample_id] for row in rows])
    off = np.array([row.value for row in rows]) - known
    stated = [row.std_error**2 for row in rows if row.std_error is not None]
    variance = sum(stated) / len(rows)
    unseen = math.sqrt(max(float(np.var(off, ddof=1)), flips / n) / len(off))  # a bias that so few images would not reveal
    squares = off**2 - (_binomial(known, n) / n + variance)
    excess = _significant(squares) if stated else float(squares.mean()) + _standard_error(squares)
    bias = max(unseen, abs(_significant(off)))
    return Level(variance * max(1, trial.draws), max(bias**2, excess), bias, between)


def _binomial(shares: Floats, n: int) -> float:
    """Unbiased estimate of the mean of p (1 - p) from shares of n draws."""
    return float(np.mean(shares * (1 - shares))) * n / (n - 1)


def _standard_error(values: Floats) -> float:
    """The standard error of the mean."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values))


def _significant(values: Floats) -> float:
    """The mean, where it is more than two standard errors from 0, else 0."""
    mean = float(np.mean(values))
    return mean if abs(mean) > 2 * _standard_error(values) else 0.0


class TooLongError(BaseException):
    """The time is up. Not an Exception, so that no handler in an estimator hides it."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Interrupt the block at the first pass through a network after ``seconds`` seconds.

    Raises:
        TooLongError: at that pass.
    """
    end = time.perf_counter() + seconds

    def check(_module: nn.Module, _inputs: tuple[Tensor, ...]) -> None:
        if time.perf_counter() > end:
            raise TooLongError

    hook = register_module_forward_pre_hook(check)
    try:
        yield
    finally:
        hook.remove()
