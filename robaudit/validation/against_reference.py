"""Comparison of a spec's estimators with converged Monte Carlo on a few of its images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from robaudit.auditing.audit import Computed, compute
from robaudit.auditing.environment import deterministic, pick_device
from robaudit.auditing.main_loop import OnError
from robaudit.auditing.outputs import first_info, history
from robaudit.auditing.prepare import PreparedAudit, Request, on_stream, prepare
from robaudit.datasets.dataset import Dataset
from robaudit.datasets.open_dataset import open_dataset
from robaudit.datasets.select import Selected, random_subset
from robaudit.engine.registry import Task, reference_class
from robaudit.errors import NothingLeftError
from robaudit.levels import NoiseLevel
from robaudit.models.logits import rounded_products
from robaudit.models.pretrained import filled
from robaudit.plugins import reference
from robaudit.progress import Listener
from robaudit.runs.info import RunInfo
from robaudit.runs.rows import Row
from robaudit.spec.model import AuditSpec
from robaudit.stats.summary import share
from robaudit.validation.deviations import ReferenceComparison, Truths, compare
from robaudit.validation.verdicts import advice, remark, verdict

STREAM = "reference"
"""The noise stream of the reference, which no run uses."""


@dataclass(frozen=True)
class Validation:
    """The estimators of a spec compared with the reference.

    Attributes:
        info: the computation and its inputs, as in run.json.
        draws: of the reference, per image and noise level.
        rows: by (sample id, noise level, name of the result).
        truths: the reference by (sample id, noise level).
        comparisons: in the order of the spec: noise levels, then estimators.
        skipped: samples left out, with the reason.
        seconds: of the estimators, and of the reference.
    """

    info: RunInfo
    draws: int
    rows: Mapping[tuple[str, NoiseLevel, str], Row]
    truths: Truths
    comparisons: Sequence[ReferenceComparison]
    skipped: Sequence[tuple[str, str]] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    def at(self, level: NoiseLevel) -> list[ReferenceComparison]:
        """The comparisons at one noise level."""
        return [comparison for comparison in self.comparisons if comparison.at == level]

    @property
    def levels(self) -> list[NoiseLevel]:
        """The noise levels, in order."""
        return list(dict.fromkeys(comparison.at for comparison in self.comparisons))

    def verdicts(self) -> list[dict[str, Any]]:
        """For each noise level, a verdict on every estimator, advice, and the limits of the
        comparison."""
        by_level = []
        for at in self.levels:
            group = self.at(at)
            known = [truth.value for (_, level), truth in self.truths.items() if level == at]
            verdicts = {comparison.estimator: verdict(comparison) for comparison in group}
            by_level.append(
                {
                    **at.document(),
                    "verdicts": verdicts,
                    "advice": advice(group),
                    "remark": remark(group, known),
                }
            )
        return by_level


def validate(
    spec: AuditSpec,
    *,
    images: int,
    draws: int,
    trust: bool = False,
    on_error: OnError = "stop",
    listener: Listener | None = None,
    command: str | None = None,
) -> Validation:
    """Compare every estimator of a spec with Monte Carlo on independent noise, on a random subset
    of the spec's samples.

    The run's seed draws the subset from the samples that the spec chooses. The estimators get the
    noise that they would get in a run; the reference gets the named stream "reference" of the same
    seed, which no run uses.

    Args:
        spec: what to validate.
        images: number of images; all, if there are fewer.
        draws: of the reference, per image and noise level.
        trust: allow Python code that the spec names.
        on_error: at an unusable sample: stop, or leave it out.
        listener: receives notes, warnings and progress.
        command: the command line as the user typed it.

    Raises:
        RobauditError: spec, model or data are not usable.
        NothingLeftError: every sample was skipped.
    """
    listener = listener or Listener()
    spec = filled(spec)
    device = pick_device(spec.run.device)
    whole = open_dataset(spec.dataset, base_dir=spec.base_dir, trust=trust)
    subset = Selected(whole, random_subset(len(whole), images, spec.run.seed))
    with deterministic(spec.run.deterministic, device), rounded_products(False):
        ready = prepare(
            Request(spec, trust=trust, skip_bad=on_error == "skip", dataset=subset),
            device,
            listener,
        ).at_levels(listener)
        listener.note(f"the estimators on {len(subset)} of {len(whole)} images")
        computed = compute(ready, ready.engine, subset, ready.tasks, listener, on_error=on_error)
        usable = _without(subset, {skip.sample_id for skip in computed.skipped})
        if not computed.rows:
            raise NothingLeftError(
                whole.where, "every sample was skipped", f"the first: {computed.skipped[0].reason}"
            )
        listener.note(f"the reference: {reference()} with {draws:,} draws of its own noise")
        truths, seconds = measure(ready, usable, draws, listener)
    return Validation(
        info=first_info(replace(ready, data=whole), **history(None, command, ready.info.device)),
        draws=draws,
        rows=computed.rows,
        truths=truths,
        comparisons=_comparisons(ready, computed, truths),
        skipped=[(skip.sample_id, skip.reason) for skip in computed.skipped],
        seconds={"estimators": sum(computed.seconds.values()), "reference": seconds},
    )


def _without(samples: Selected, skipped: set[str]) -> Selected:
    return (
        Selected(samples, [i for i in range(len(samples)) if samples.sample_id(i) not in skipped])
        if skipped
        else samples
    )


def _comparisons(
    ready: PreparedAudit, computed: Computed, truths: Truths
) -> list[ReferenceComparison]:
    result = []
    kinds = {entry.label: entry.name for entry in ready.spec.estimators}
    for task in ready.tasks:
        seconds = computed.seconds[task.label, task.at]
        for at, name in task.names:
            rows = [row for row in computed.rows.values() if (row.estimator, row.at) == (name, at)]
            known = [truths[row.sample_id, at] for row in rows]
            result.append(compare(rows, known, task.estimator.quantity, seconds, kinds[task.label]))
    return result


def measure(
    ready: PreparedAudit, samples: Dataset, draws: int, listener: Listener
) -> tuple[Truths, float]:
    """The reference of every sample at every noise level of the spec, and the seconds it took."""
    engine = on_stream(ready.engine, ready.noises, ready.spec.run.seed, STREAM)
    computed = compute(ready, engine, samples, _votes(ready.spec.levels, draws), listener)
    truths = {
        (name, at): share(round(row.value * draws), draws)
        for (name, at, _), row in computed.rows.items()
    }
    return truths, sum(computed.seconds.values())


def _votes(levels: Sequence[NoiseLevel], draws: int) -> tuple[Task, ...]:
    estimator = reference_class().model_validate({"draws": draws})
    return tuple(Task(estimator, STREAM, at) for at in levels)
