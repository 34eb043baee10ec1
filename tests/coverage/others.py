"""Intervals and bounds besides probabilities of keeping the class: rare failures, tolerances, losses, certificates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from robaudit.errors import ModelError
from robaudit.estimators.mc import count_votes
from robaudit.gates.decide import Decision, decide
from robaudit.numerics.losses import log_cross_entropy, log_norm
from robaudit.quantities import LOG10_P_FAIL, LOSS, IntervalKind
from robaudit.results import Result
from tests.coverage.audits import Errors, Floats, row_of, work_on
from tests.coverage.subjects import Subject
from tests.unit.estimators.tools import build, built, installed_estimators, values
from tests.unit.gates.tools import gate, run_of

FEWEST = 200
"""Failures, or effective copies, behind a truth."""
ORDERS = (1.0, 10.0, 100.0)
KNOWN = 0.007
"""Largest standard error of a true log Z."""
LEVEL = 0.95
"""Of noise_tolerance."""


def study(subject: Subject, seeds: int, draws: int) -> Iterator[Errors]:
    """Every estimator, against so many plain copies of each image."""
    work = work_on(subject, subject.model, 2**31)
    votes = count_votes(work, range(len(subject.x)), 0, draws)[:, : subject.classes].numpy()
    for part in (_splitting, _certified, _tolerances):
        yield from part(subject, seeds, votes, draws)
    yield from _losses(subject, seeds, 4 * draws)
    yield from _smoothed(subject, seeds, draws)


def _errors(subject: Subject, estimator: str, about: str, ends: Sequence[tuple[float, float, float]], limit: float = 0.025) -> Errors:
    """Of (lower, upper, truth)."""
    lower, upper, truth = np.array(ends, dtype=np.float64).reshape(-1, 3).T
    width = float((upper - lower).mean()) if len(ends) and np.isfinite(upper - lower).all() else math.nan
    above, below = int((lower > truth).sum()), int((upper < truth).sum())
    return Errors(subject.name, estimator, about, len(ends), above, below, width, rows=True, limit=limit)


def _splitting(subject: Subject, seeds: int, votes: Floats, draws: int) -> Iterator[Errors]:
    """log10 p_fail, of images with failures enough to know it by."""
    predicted = work_on(subject, subject.model, 0).predicted.numpy()
    failures = draws - votes[np.arange(len(votes)), predicted]
    of = np.flatnonzero((failures >= FEWEST) & (failures < draws / 10))
    if not of.size:
        return
    known = np.log10(failures[of] / draws)
    some = replace(subject, x=subject.x[of], labels=subject.labels[of])
    ends, verdicts = list[tuple[float, float, float]](), list[Decision]()
    for seed in range(seeds):
        work = work_on(some, some.model, seed)
        found = build("splitting", particles=500).estimate(work)
        ends += [(one.lower or -math.inf, one.upper or 0.0, float(t)) for one, t in zip(found, known, strict=True)]
        about = zip(work.ids, some.labels.tolist(), work.predicted.tolist(), found, strict=True)
        rows = [row_of(*one, "splitting", some.level, LOG10_P_FAIL.name) for one in about]
        verdicts += decide(run_of(rows), [gate(f"mean <= {known.mean():.12g}")])
    yield _errors(subject, "splitting", "log10 p_fail", ends)
    passed, failed = (sum(one.verdict == which for one in verdicts) for which in ("pass", "fail"))
    yield Errors(subject.name, "splitting", "mean", len(verdicts), passed, failed, math.nan)


def _certified(subject: Subject, seeds: int, votes: Floats, draws: int) -> Iterator[Errors]:
    """Certificates larger than the radius of the true probability of their class, sigma Phi^-1(p); alpha is .05 to see any."""
    from scipy.special import ndtri

    estimator, ends = built(installed_estimators()["certified_radius"], n=1000, alpha=0.05), []
    for seed in range(seeds):
        for image, (one,) in enumerate(values(estimator, work_on(subject, subject.model, seed))):
            chosen = None if one.certificate is None else one.certificate.label
            if chosen is not None:
                p = (votes[image, chosen] + 1) / (draws + 1)
                ends.append((one.value, math.inf, subject.level * float(ndtri(p))))
    if ends:
        yield _errors(subject, "certified_radius, alpha .05", "radius", ends, 0.05)


def _tolerances(subject: Subject, seeds: int, _: Floats, draws: int) -> Iterator[Errors]:
    """Intervals of the level at which p is .95: p at the lower end is at least, and at the upper end at most, so large."""
    ends = []
    for seed in range(max(1, seeds // 2)):
        work = work_on(subject, subject.model, seed)
        for image, (one,) in enumerate(values(built(installed_estimators()["noise_tolerance"], level=LEVEL, tolerance=0.1), work)):
            if one.interval.kind is IntervalKind.OTHER and one.lower and one.upper:
                low, high = (_kept(subject, image, end, 2 * draws) for end in (one.lower, one.upper))
                ends.append((-low, -high, -LEVEL))
    yield _errors(subject, "noise_tolerance", "level", ends)


def _kept(subject: Subject, image: int, level: float, draws: int) -> float:
    """p of one image at a level."""
    some = replace(subject, x=subject.x[image : image + 1], labels=subject.labels[image : image + 1], level=level)
    work = work_on(some, some.model, 2**31 + image)
    return float(count_votes(work, [0], 0, draws)[0, work.predicted[0]]) / draws


def _losses(subject: Subject, seeds: int, draws: int) -> Iterator[Errors]:
    """q-norms of the loss where plain copies know them; for q = 1, the gate on their mean."""
    work = work_on(subject, subject.model, 2**31)
    losses = torch.empty((len(work.x), draws), dtype=torch.float64)
    for batch, logits in work.engine.noisy_logits(work.x, work.ids, work.at, draws):
        losses[batch.image, batch.draw] = log_cross_entropy(logits, subject.labels[batch.image])[0]
    known = [log_norm(losses, q) for q in ORDERS]
    for name, options in (("qnorm_path", {"temperatures": 80, "steps": 3}), ("qnorm_mc", {"samples": 2000})):
        estimator = built(installed_estimators()[name], q=ORDERS, **options)
        runs = [values(estimator, work_on(subject, subject.model, seed)) for seed in range(max(1, seeds // 2))]
        for k, (q, (log_z, ess)) in enumerate(zip(ORDERS, known, strict=True)):
            of = [i for i in range(len(work.x)) if ess[i] >= FEWEST and 1 / (q * float(ess[i]) ** 0.5) <= KNOWN]
            rows: list[tuple[Result, float]] = [(found[i][k], float(log_z[i])) for found in runs for i in of]
            ends = [(math.log(one.lower), math.log(one.upper), t) for one, t in rows if one.lower and one.upper]
            if ends:
                yield _errors(subject, name, f"q = {q:g}, log", ends)
        if name == "qnorm_path":
            target = float(known[0][0].exp().mean())
            verdicts = list[Decision]()
            for found in runs:
                about = zip(work.ids, subject.labels.tolist(), work.predicted.tolist(), (one[0] for one in found), strict=True)
                rows_of = [row_of(*one, name, subject.level, LOSS.name) for one in about]
                verdicts += decide(run_of(rows_of), [gate(f"mean <= {target:.12g}")])
            passed, failed = (sum(one.verdict == which for one in verdicts) for which in ("pass", "fail"))
            yield Errors(subject.name, f"{name}, q = 1", "mean", len(verdicts), passed, failed, math.nan)


def _smoothed(subject: Subject, seeds: int, draws: int) -> Iterator[Errors]:
    """Radii of smoothed_margin, times their constant, above the mean margin of many copies; alpha is .05."""
    estimator, ends = built(installed_estimators()["smoothed_margin"], norm="l2", alpha=0.05, samples=64), []
    work = work_on(subject, subject.model, 2**31)
    try:
        estimator.check_model(work.engine.model, work.x[0])
    except ModelError:
        return
    margin = torch.zeros(len(work.x), dtype=torch.float64)
    for batch, logits in work.engine.noisy_logits(work.x, work.ids, work.at, draws // 4):
        own = work.predicted[batch.image, None]
        gap = logits.double().gather(1, own)[:, 0] - logits.double().scatter(1, own, -math.inf).amax(1)
        margin.index_add_(0, batch.image, gap / (draws // 4))
    for seed in range(seeds):
        for image, (one,) in enumerate(values(estimator, work_on(subject, subject.model, seed))):
            ends.append((one.value * one.numbers["lipschitz"], math.inf, max(0.0, float(margin[image]))))
    yield _errors(subject, "smoothed_margin, alpha .05", "radius", ends, 0.05)
