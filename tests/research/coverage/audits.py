"""Whole audits of networks that nobody tuned for: how often gates and comparisons err, and how
often rows miss, on each side.

The truth is the share of many plain copies. A gate is put at the truth, so each of its two verdicts
is an error, and each should be rare: at most 2.5 % of the seeds. A row misses where its lower end
is above p, or its upper end below.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from robaudit.auditing.rounds import draws_of_rounds
from robaudit.compare.difference import compare
from robaudit.engine.batch import ImageBatch
from robaudit.engine.passes import Engine
from robaudit.engine.votes import count_votes
from robaudit.gates.decide import Decision, decide
from robaudit.models import LogitModel
from robaudit.numerics.looks import confidence_of_each
from robaudit.quantities import P_ROBUST
from robaudit.results import Result
from robaudit.runs.rows import Row
from robaudit.runs.table import Columns
from tests.levels import gaussian_process, sigma
from tests.research.coverage.subjects import SLOW, Subject
from tests.rows import class_bias
from tests.unit.compare.tools import decided, made
from tests.unit.engine.tools import build
from tests.unit.gates.tools import gate, run_of

BINS = (0.0, 0.05, 0.5, 0.95, 0.9995, 1.0)
"""Of p, for the rows."""
BELOW = 0.9
GATES = (
    "mean",
    "worst_class",
    "class_gap",
    "median",
    "p05",
    f"share_below(t={BELOW})",
    "noisy_accuracy",
    "accuracy",
)
DROPS = ("mean_drop", "worst_class_drop", "noisy_accuracy_drop")
COUNTED = "mc, 64 copies"
ESTIMATORS: dict[str, tuple[str, dict[str, Any]]] = {
    COUNTED: ("mc", {"draws": 64}),
    "logit_gaussian": ("logit_gaussian", {"draws": 96}),
    "mmse": ("mmse", {}),
}
UNVOTED = ("mmse",)
"""No gate rests on them, so a tenth of the seeds will do for their rows."""
POPULATION = (COUNTED, "logit_gaussian")
"""Those whose gates with --population are looked at; they use the values alone."""
LIKE = "population: "
MANY = "mean, "
SAMPLED, RESAMPLED = 100, 20
"""Images drawn for a gate with --population, and how often for each network."""
UNTIL = 1024
"""The most copies of `--until-decided`."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Errors:
    """How often something was wrong, on each side.

    Attributes:
        network, estimator: of what.
        about: the gate, or the rows' bin of p.
        cases: verdicts or rows.
        up: gates passed, or rows with a lower end above p.
        down: gates failed, or rows with an upper end below p.
        width: mean width of the intervals; NaN without any.
        rows: whether they are rows.
    """

    network: str
    estimator: str
    about: str
    cases: int
    up: int
    down: int
    width: float
    rows: bool = False


def together(some: Sequence[Errors]) -> Errors:
    """The errors of several networks as one."""
    cases = sum(one.cases for one in some)
    width = sum(one.width * one.cases for one in some) / cases
    return replace(
        some[0],
        cases=cases,
        up=sum(one.up for one in some),
        down=sum(one.down for one in some),
        width=width,
    )


# --- one audit


def work_on(subject: Subject, model: LogitModel, seed: int) -> ImageBatch:
    """All images as a chunk."""
    engine = Engine(model, gaussian_process(seed, torch.device("cpu")), subject.classes)
    return ImageBatch.from_images(engine, subject.x, sigma(subject.level), labels=subject.labels)


def audit(
    subject: Subject, model: LogitModel, name: str, options: dict[str, Any], seed: int
) -> list[Row]:
    """The rows of an estimator on all images."""
    batch = work_on(subject, model, seed)
    found = zip(
        batch.ids,
        subject.labels.tolist(),
        batch.predicted.tolist(),
        build(name, **options).estimate(batch),
        strict=True,
    )
    return [row_of(*one, name, subject.level) for one in found]


def row_of(
    sample: str,
    label: int,
    predicted: int,
    one: Result,
    name: str,
    level: float,
    quantity: str = P_ROBUST.name,
) -> Row:
    """An estimate as a row."""
    about = {
        "sample_id": sample,
        "label": label,
        "predicted": predicted,
        "correct": label == predicted,
        **sigma(level).document(),
    }
    return Row.from_result(one, **about, estimator=name, quantity=quantity)


@dataclass(frozen=True, slots=True)
class Truth:
    """The shares of copies that keep the predicted class, and that have the label, of each image;
    labels and predictions."""

    p: Floats
    hits: Floats
    labels: NDArray[np.int64]
    predicted: NDArray[np.int64]

    def values(self) -> dict[str, float]:
        """What each gate is about, by quantity."""
        classes = [float(self.p[self.labels == c].mean()) for c in np.unique(self.labels)]
        found = (
            float(self.p.mean()),
            min(classes),
            max(classes) - min(classes),
            float(np.quantile(self.p, 0.5)),
            float(np.quantile(self.p, 0.05)),
            float((self.p < BELOW).mean()),
            float(self.hits.mean()),
            float((self.labels == self.predicted).mean()),
        )
        return dict(zip(GATES, found, strict=True))

    def drops(self, new: Truth) -> dict[str, float]:
        """What each gate on a comparison is about."""
        worst = max(
            float((self.p - new.p)[self.labels == c].mean()) for c in np.unique(self.labels)
        )
        return dict(
            zip(
                DROPS,
                (float((self.p - new.p).mean()), worst, float((self.hits - new.hits).mean())),
                strict=True,
            )
        )


def truth(subject: Subject, model: LogitModel, draws: int) -> Truth:
    """From so many plain copies of each image; a quarter of them for slow networks."""
    draws = draws // 4 if subject.name in SLOW else draws
    batch = work_on(subject, model, 2**31)
    shares = count_votes(batch, range(len(subject.x)), 0, draws).double().div(draws)
    p, hits = (
        shares.gather(1, of[:, None])[:, 0].numpy() for of in (batch.predicted, subject.labels)
    )
    return Truth(p, hits, subject.labels.numpy(), batch.predicted.numpy())


# --- gates, comparisons, rows


def study(subject: Subject, seeds: int, draws: int) -> Iterator[Errors]:
    """Wrong verdicts and missing rows of every estimator, over seeds."""
    known = truth(subject, subject.model, draws)
    new = None
    if subject.changed is not None:
        new = truth(subject, subject.changed, draws)
    for estimator, (name, options) in ESTIMATORS.items():
        repeats = max(1, seeds // 10) if estimator in UNVOTED else seeds
        runs = [audit(subject, subject.model, name, options, seed) for seed in range(repeats)]
        if estimator not in UNVOTED:
            yield from _of_gates(subject.name, estimator, runs, known)
            if len(subject.x) >= SAMPLED and estimator in POPULATION:
                yield from _of_population(subject.name, estimator, runs, known)
            if new is not None:
                yield from _of_drops(subject, estimator, runs, known, new)
        kinds = {estimator: [Columns.from_rows(rows) for rows in runs]}
        if any(not row.interval.covers_bias for row in runs[0]) and runs[0][0].votes:
            kinds[f"{estimator}: its votes"] = [Columns.from_rows(rows).by_votes() for rows in runs]
        for kind, some in kinds.items():
            yield from _of_rows(subject.name, kind, some, known.p)
    yield _until_decided(
        subject.first(SAMPLED), max(1, seeds // 2), replace(known, p=known.p[:SAMPLED])
    )


def many(subject: Subject, seeds: int, draws: int) -> Iterator[Errors]:
    """Gates on the mean of many images, where a bias of the fit shows: its size does not shrink
    with their number."""
    known = truth(subject, subject.model, draws)
    asked = [gate(f"mean >= {float(known.p.mean()):.12g}")]
    for estimator, (name, options) in ESTIMATORS.items():
        if estimator not in UNVOTED:
            verdicts = [
                decide(run_of(audit(subject, subject.model, name, options, seed)), asked)[0]
                for seed in range(seeds)
            ]
            yield _counted(subject.name, estimator, f"{MANY}{len(subject.x)} images", verdicts)


def _relation(quantity: str) -> str:
    return "<=" if quantity in ("class_gap", *DROPS) or quantity.startswith("share_below") else ">="


def _counted(network: str, estimator: str, about: str, verdicts: Sequence[Decision]) -> Errors:
    ends = [(one.estimate.lower, one.estimate.upper) for one in verdicts]
    width = float(
        np.mean([np.nan if low is None or high is None else high - low for low, high in ends])
    )
    passed, failed = (sum(one.verdict == which for one in verdicts) for which in ("pass", "fail"))
    return Errors(network, estimator, about, len(verdicts), passed, failed, width)


def _of_gates(
    network: str, estimator: str, runs: Sequence[Sequence[Row]], known: Truth
) -> Iterator[Errors]:
    """Gates on these images, at the truth. A share of images is put half an image to the side on
    which the verdict is wrong."""
    for quantity, value in known.values().items():
        if quantity == "accuracy":
            continue  # known exactly
        if (quantity.startswith("share") and not 0 < value < 1) or (
            _relation(quantity) == ">=" and value <= 0
        ):
            continue  # a verdict may be right
        found = []
        for off in (-0.5, 0.5) if quantity.startswith("share") else (0.0,):
            asked = gate(f"{quantity} {_relation(quantity)} {value + off / len(known.p):.12g}")
            found.append(
                _counted(
                    network,
                    estimator,
                    quantity,
                    [decide(run_of(rows), [asked])[0] for rows in runs],
                )
            )
        yield replace(found[0], down=found[-1].down)


def _of_population(
    network: str, estimator: str, runs: Sequence[Sequence[Row]], known: Truth
) -> Iterator[Errors]:
    """Gates on images drawn from all of these with replacement, each from another run, at the truth
    for all of them."""
    generator = np.random.default_rng(1)
    picks = [
        list(
            zip(
                generator.integers(len(runs), size=SAMPLED),
                generator.integers(len(known.p), size=SAMPLED),
                strict=True,
            )
        )
        for _ in range(RESAMPLED)
    ]
    samples = [
        run_of([replace(runs[k][i], sample_id=str(j)) for j, (k, i) in enumerate(pick)])
        for pick in picks
    ]
    wanted = known.values()
    asked = [
        gate(f"{quantity} {_relation(quantity)} {value:.12g}") for quantity, value in wanted.items()
    ]
    verdicts = [decide(one, asked, population=True) for one in samples]
    for k, quantity in enumerate(wanted):
        yield _counted(network, estimator, LIKE + quantity, [one[k] for one in verdicts])
    if estimator == COUNTED:
        gaps = [
            one.gap
            for one in (class_bias(run.rows, permutations=500) for run in samples)
            if one.gap is not None
        ]
        bounds = [one.estimate.bounds or (0.0, math.inf) for one in gaps]
        up = sum(lower > wanted["class_gap"] for lower, _ in bounds)
        down = sum(upper < wanted["class_gap"] for _, upper in bounds)
        width = float(np.mean([upper - lower for lower, upper in bounds]))
        yield Errors(
            network, estimator, LIKE + "the gap of bias-report", len(gaps), up, down, width
        )


def _of_drops(
    subject: Subject, estimator: str, runs: Sequence[list[Row]], known: Truth, new: Truth
) -> Iterator[Errors]:
    """Gates on what was lost to the changed network, at the truth: for these images, and of the
    mean for images like these."""
    assert subject.changed is not None
    name, options = ESTIMATORS[estimator]
    drops = known.drops(new)
    asked = {quantity: f"{quantity} <= {value:.12g}" for quantity, value in drops.items()}
    found: dict[str, list[Decision]] = {quantity: [] for quantity in asked}
    resampled = (
        RESAMPLED // len(runs) if estimator in POPULATION and len(subject.x) >= SAMPLED else 0
    )
    generator = np.random.default_rng(2)
    for seed, rows in enumerate(runs):
        now = audit(subject, subject.changed, name, options, seed)
        for quantity, one in zip(
            asked, decided(compare(made(rows), made(now, 0, "b")), *asked.values()), strict=True
        ):
            found[quantity].append(one)
        for _ in range(resampled):
            pick = generator.integers(len(rows), size=SAMPLED)
            both = (
                [replace(of[i], sample_id=str(j)) for j, i in enumerate(pick)] for of in (rows, now)
            )
            pair = compare(*(made(some, 0, model) for some, model in zip(both, "ab", strict=True)))
            found.setdefault(LIKE + "mean_drop", []).extend(
                decided(pair, asked["mean_drop"], population=True)
            )
    for quantity, verdicts in found.items():
        yield _counted(subject.name, estimator, quantity, verdicts)


def _of_rows(network: str, estimator: str, runs: Sequence[Columns], p: Floats) -> Iterator[Errors]:
    lower = np.array([one.lower for one in runs])
    upper = np.array([one.upper for one in runs])
    for low, high in pairwise(BINS):
        of = (p > low) & (p <= high) if low else p <= high
        if of.any():
            above = int((lower > p)[:, of].sum())
            below = int((upper < p)[:, of].sum())
            width = float((upper - lower)[:, of].mean())
            yield Errors(
                network,
                estimator,
                f"to {high:g}",
                int(of.sum()) * len(runs),
                above,
                below,
                width,
                rows=True,
            )


def _until_decided(subject: Subject, seeds: int, known: Truth) -> Errors:
    """`--until-decided` on the mean at the truth: an analysis after each round, until one
    decides."""
    asked = [gate(f"mean >= {float(known.p.mean()):.12g}")]
    looks = draws_of_rounds(UNTIL)
    each = confidence_of_each(0.95, looks)
    verdicts = list[Decision]()
    for seed in range(seeds):
        found = tuple[Decision, ...]()
        for draws in looks:
            rows = audit(subject, subject.model, "mc", {"draws": draws}, 1000 + seed)
            found = decide(run_of(rows), asked, confidence=each)
            if found[0].verdict != "inconclusive":
                break
        verdicts += found
    return _counted(subject.name, f"mc, --until-decided, up to {UNTIL:,} copies", "mean", verdicts)
