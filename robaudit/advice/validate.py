"""Comparison of a spec's estimators with converged Monte Carlo on a few of its images.

With ``convergence``, also the study of Han, Srinivas and Lakkaraju ("Average-case robustness"): the RMSE over images against converged
Monte Carlo for n = 1, 2, 4, ... draws.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from robaudit.advice.comparison import Comparison, Truth, Truths, compare
from robaudit.advice.verdicts import advice, remarks, verdict
from robaudit.auditing.environment import deterministic, pick_device, plugins
from robaudit.auditing.expected import measure_speed
from robaudit.auditing.loop import OnError
from robaudit.auditing.outputs import first_info, history
from robaudit.auditing.prepare import PreparedAudit, Request, prepare
from robaudit.auditing.run import Computed, compute
from robaudit.auditing.setup import on_stream
from robaudit.datasets.base import Dataset
from robaudit.datasets.load import open_dataset
from robaudit.datasets.select import Selected, random_subset
from robaudit.documents import Document
from robaudit.errors import NothingLeftError
from robaudit.estimators.mc import MonteCarlo
from robaudit.estimators.registry import Chosen, Task, tasks_at
from robaudit.levels import NoiseLevel
from robaudit.models.logits import rounded_products
from robaudit.progress import Listener
from robaudit.quantities import P_ROBUST
from robaudit.rows import Row
from robaudit.spec.model import AuditSpec

IMAGES, DRAWS = 50, 10_000
"""Images, and draws of the reference."""

STREAM = "reference"
"""Noise stream of the reference, from which no run draws."""

FEWEST_DRAWS, MOST_DRAWS = 256, 10**6
"""Draws of the reference under a budget."""

CONVERGENCE_SHARE = 0.25
"""The convergence study takes up to a quarter of the reference's passes: beyond that, the reference's own error would show."""

_OVERRUN = 1.1


@dataclass(frozen=True, slots=True)
class Point(Document):
    """Error of an estimator with n draws.

    Attributes:
        estimator, at, n: the estimator, the noise level, and the draws per image.
        images: number of images.
        forwards, backwards: passes per image.
        rmse, rmse_error, bias, bias_error: as in :class:`robaudit.advice.comparison.Error`.
    """

    estimator: str
    at: NoiseLevel
    n: int
    images: int
    forwards: float
    backwards: float
    rmse: float
    rmse_error: float | None
    bias: float
    bias_error: float | None


@dataclass(frozen=True)
class Validation:
    """The estimators of a spec compared with the reference.

    Attributes:
        info: what was computed, and on what, as in run.json.
        draws: of the reference, per image and noise level.
        rows: by (sample id, noise level, name of the result).
        truths: the reference by (sample id, noise level).
        comparisons: in the order of the spec: noise levels, then estimators.
        skipped: samples left out, with the reason.
        points: of the convergence study; empty without one.
        seconds: of the estimators, and of the reference.
    """

    info: Mapping[str, Any]
    draws: int
    rows: Mapping[tuple[str, NoiseLevel, str], Row]
    truths: Truths
    comparisons: Sequence[Comparison]
    skipped: Sequence[tuple[str, str]] = ()
    points: Sequence[Point] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    def at(self, level: NoiseLevel) -> list[Comparison]:
        """The comparisons at one noise level."""
        return [one for one in self.comparisons if one.at == level]

    @property
    def levels(self) -> list[NoiseLevel]:
        """The noise levels, in order."""
        return list(dict.fromkeys(one.at for one in self.comparisons))

    def verdicts(self) -> list[dict[str, Any]]:
        """For each noise level, a verdict on every estimator, what to use, and what limits the comparison."""
        by_level = []
        for at in self.levels:
            group = self.at(at)
            known = [truth.value for (_, level), truth in self.truths.items() if level == at]
            verdicts = {one.estimator: verdict(one) for one in group}
            by_level.append({**at.document(), "verdicts": verdicts, "advice": advice(group), "remarks": remarks(group, known)})
        return by_level


def validate(
    spec: AuditSpec,
    *,
    images: int = IMAGES,
    draws: int = DRAWS,
    budget: float | None = None,
    convergence: bool = False,
    trust: bool = False,
    on_error: OnError = "stop",
    model: nn.Module | None = None,
    dataset: Dataset | None = None,
    listener: Listener | None = None,
    command: str | None = None,
) -> Validation:
    """Run every estimator of a spec, and Monte Carlo with noise of its own, on a random subset of its samples, and compare.

    The subset is drawn with the run's seed from the samples that the spec chooses. The estimators get the noise that they would get in a
    run; the reference gets the named stream "reference" of the same seed, which no run draws from.

    Args:
        spec: what to validate.
        images: how many; all, if there are fewer.
        draws: of the reference, per image and noise level.
        budget: seconds for the estimators and the reference, with as many draws as they leave time for (at least 256); neither loading
            nor the convergence study counts. A note says by how much it was overrun.
        convergence: also measure the error as a function of the draws, for estimators with a number of draws.
        trust: allow Python code that the spec names.
        on_error: at an unusable sample: stop, or leave it out.
        model, dataset: in place of those the spec names.
        listener: receives notes, warnings and progress.
        command: the command line as the user typed it.

    Raises:
        RobauditError: spec, model or data are not usable.
        NothingLeftError: every sample was skipped.
    """
    listener = listener or Listener()
    device = pick_device(spec.run.device)
    whole = dataset if dataset is not None else open_dataset(spec.dataset, base_dir=spec.base_dir, trust=trust)
    subset = Selected(whole, random_subset(len(whole), images, spec.run.seed))
    with deterministic(spec.run.deterministic, device), rounded_products(False):
        ready = prepare(Request(spec, trust=trust, skip_bad=on_error == "skip", model=model, dataset=subset), device, listener).at_levels(
            listener
        )
        started, alone = time.perf_counter(), 0.0
        listener.note(f"the estimators on {len(subset)} of {len(whole)} images")
        computed = compute(ready, ready.engine, subset, ready.tasks, listener, on_error=on_error)
        kept = _without(subset, {skip.sample_id for skip in computed.skipped})
        if not computed.rows:
            raise NothingLeftError(whole.where, "every sample was skipped", f"the first: {computed.skipped[0].reason}")
        if budget is not None:
            alone = time.perf_counter() - started
            draws = draws_within(ready, kept, budget - alone)
        listener.note(f"the reference: mc with {draws:,} draws of its own noise")
        truths, seconds = measure(ready, kept, draws, listener)
        if budget is not None and (spent := time.perf_counter() - started) > _OVERRUN * budget:
            parts = f"the estimators {alone:.2g} s, the reference with {draws:,} draws {spent - alone:.2g} s"
            listener.note(f"--budget: it took {spent:.2g} s, not {budget:.2g} s: {parts}")
        points = converge(ready, kept, truths, listener) if convergence else ()
    info = {
        **{key: value for key, value in first_info(spec, ready.facts, whole).items() if key != "schema_version"},
        "plugins": plugins([task.chosen for task in ready.tasks]),
        **history(None, command, ready.facts.device),
    }
    return Validation(
        info=info,
        draws=draws,
        rows=computed.rows,
        truths=truths,
        comparisons=_comparisons(ready, computed, truths),
        skipped=[(skip.sample_id, skip.reason) for skip in computed.skipped],
        points=points,
        seconds={"estimators": sum(computed.seconds.values()), "reference": seconds},
    )


def _without(samples: Selected, gone: set[str]) -> Selected:
    return Selected(samples, [i for i in range(len(samples)) if samples.sample_id(i) not in gone]) if gone else samples


def _comparisons(ready: PreparedAudit, computed: Computed, truths: Truths) -> list[Comparison]:
    result = []
    for task in ready.tasks:
        chosen, seconds = task.chosen, computed.seconds[task.chosen.label, task.at]
        for at, name in task.names:
            rows = [row for row in computed.rows.values() if (row.estimator, row.at) == (name, at)]
            known = [truths[row.sample_id, at] for row in rows]
            result.append(compare(rows, known, chosen.estimator.quantity, seconds, chosen.name))
    return result


def measure(ready: PreparedAudit, samples: Dataset, draws: int, listener: Listener) -> tuple[Truths, float]:
    """The reference of every sample at every noise level of the spec, and the seconds it took."""
    engine = on_stream(ready.engine, ready.noises, ready.spec.run.seed, STREAM)
    computed = compute(ready, engine, samples, _votes(ready.spec.levels, draws), listener)
    truths = {(name, at): Truth(round(row.value * draws), draws) for (name, at, _), row in computed.rows.items()}
    return truths, sum(computed.seconds.values())


def draws_within(ready: PreparedAudit, samples: Dataset, seconds: float) -> int:
    """Draws per image and noise level that take about ``seconds`` seconds; at least 256."""
    passes = measure_speed(ready).rate * seconds
    return int(min(MOST_DRAWS, max(FEWEST_DRAWS, passes / (len(samples) * len(ready.spec.levels)))))


def _votes(levels: Sequence[NoiseLevel], draws: int) -> tuple[Task, ...]:
    return tasks_at(levels, [Chosen(STREAM, "mc", MonteCarlo(samples=draws))])


def converge(ready: PreparedAudit, samples: Dataset, truths: Truths, listener: Listener) -> list[Point]:
    """Compare the spec's estimators of p_robust whose draws can be chosen with the reference, at 1, 2, 4, ... draws.

    Args:
        ready: the audit of the spec.
        samples: the images of the reference.
        truths: the reference.
        listener: receives progress.
    """
    draws = next(iter(truths.values())).draws
    variants = [one for task in ready.tasks for one in variants_of(task, int(CONVERGENCE_SHARE * draws), ready.engine.classes)]
    if not variants:
        listener.warn("--convergence: no estimator of the spec has a number of draws to vary; mc, mmse and logit_gaussian do")
        return []
    listener.note(f"convergence: {len(variants)} settings")
    computed = compute(ready, ready.engine, samples, [task for _, _, task in variants], listener)
    points = []
    for label, n, task in variants:
        rows = [row for row in computed.rows.values() if (row.estimator, row.at) == (task.chosen.label, task.at)]
        known = [truths[row.sample_id, row.at] for row in rows]
        points.append(_point(label, n, compare(rows, known, task.chosen.estimator.quantity, 0.0)))
    return points


def variants_of(task: Task, passes: int, classes: int) -> Iterator[tuple[str, int, Task]]:
    """Variants of a task with powers of two as draws: label, draws and task; none for an estimator without such an option.

    Args:
        task: one of the spec.
        passes: largest cost of an image, in forward passes (a backward pass counts as two).
        classes: number of logits.
    """
    chosen = task.chosen
    for n in (2**i for i in range(31)):
        single = chosen.estimator.quantity.name == P_ROBUST.name and not chosen.estimator.parts
        estimator = chosen.estimator.with_draws(n) if single else None
        if estimator is None:
            continue
        other = Task(task.at, Chosen(f"{chosen.label} n={n}", chosen.name, estimator))
        if other.cost(classes) > passes:
            return
        yield chosen.label, n, other


def _point(label: str, n: int, one: Comparison) -> Point:
    error = one.error
    if error is None:
        raise ValueError(f"{label} does not estimate p_robust")
    return Point(
        label, one.at, n, one.images, one.forwards, one.backwards,
        error.rmse, error.rmse_error, error.bias, error.bias_error,
    )  # fmt: skip
