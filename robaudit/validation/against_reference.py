"""Compare a spec's estimators with Monte Carlo with many draws, on a few of its images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from robaudit.auditing.audit import Computed, compute
from robaudit.auditing.environment import deterministic, pick_device
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
from robaudit.spec.skipping import OnError
from robaudit.stats.summary import share
from robaudit.validation.deviations import ReferenceComparison, Truths, compare
from robaudit.validation.recorded_noise import RecordedComparison, against_recorded
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
        recorded: the reference under models of noise beside that under recorded noise, where the
            spec has both.
        skipped: samples left out, with the reason.
        seconds: of the estimators, and of the reference.
    """

    info: RunInfo
    draws: int
    rows: Mapping[tuple[str, NoiseLevel, str], Row]
    truths: Truths
    comparisons: Sequence[ReferenceComparison]
    recorded: Sequence[RecordedComparison] = ()
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
        """For each noise level, a verdict on every estimator, advice, and a remark."""
        by_level = []
        for at in self.levels:
            group = self.at(at)
            references = [truth.value for (_, level), truth in self.truths.items() if level == at]
            document = {
                **at.document(),
                "verdicts": {comparison.estimator: verdict(comparison) for comparison in group},
                "advice": advice(group),
                "remark": remark(group, references),
            }
            by_level.append(document)
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
    """Compare every estimator of a spec with Monte Carlo on independent noise.

    The images are a random subset of the samples that the spec chooses, drawn by the run's seed.
    The estimators get the noise that they would get in a run; the reference gets the named stream
    "reference" of the same seed, which no run uses.

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
    spec = filled(spec)  # with what the model's own files state
    device = pick_device(spec.run.device)
    whole = open_dataset(spec.dataset, base_dir=spec.base_dir, trust=trust)
    subset = Selected(whole, random_subset(len(whole), images, spec.run.seed))
    request = Request(spec, trust=trust, skip_bad=on_error != "stop", dataset=subset)
    # No TF32 in clean passes and in the reference, whatever the process has set.
    with deterministic(spec.run.deterministic, device), rounded_products(False):
        ready = prepare(request, device, listener).at_levels(listener)
        listener.note(f"the estimators on {len(subset)} of {len(whole)} images")
        computed = compute(ready, ready.engine, subset, ready.tasks, listener, on_error=on_error)
        # A sample that was skipped once is not read again.
        usable = _without(subset, {skip.sample_id for skip in computed.skipped})
        if not computed.rows:
            raise NothingLeftError(
                whole.where, "every sample was skipped", f"the first: {computed.skipped[0].reason}"
            )
        listener.note(f"the reference: {reference()} with {draws:,} draws of its own noise")
        truths, seconds = measure(ready, usable, draws, listener)
    # The data that the spec names, as in run.json, and not the subset.
    info = first_info(replace(ready, data=whole), **history(None, command, ready.info.device))
    return Validation(
        info=info,
        draws=draws,
        rows=computed.rows,
        truths=truths,
        comparisons=_comparisons(ready, computed, truths),
        recorded=against_recorded(ready.noises, truths),
        skipped=[(skip.sample_id, skip.reason) for skip in computed.skipped],
        seconds={"estimators": sum(computed.seconds.values()), "reference": seconds},
    )


def _without(samples: Selected, skipped: set[str]) -> Selected:
    """The samples whose ids are not among the skipped ones."""
    if not skipped:
        return samples
    indices = range(len(samples))
    return Selected(samples, [i for i in indices if samples.sample_id(i) not in skipped])


def _comparisons(
    ready: PreparedAudit, computed: Computed, truths: Truths
) -> list[ReferenceComparison]:
    """A comparison for each result of each task, in the order of the spec."""
    comparisons = []
    kinds = {entry.label: entry.name for entry in ready.spec.estimators}
    for task in ready.tasks:
        seconds = computed.seconds[task.label, task.at]
        # A task may have several results, such as one for each q of a loss.
        for at, name in task.names:
            rows = [row for row in computed.rows.values() if (row.estimator, row.at) == (name, at)]
            own_truths = [truths[row.sample_id, at] for row in rows]
            quantity = task.estimator.quantity
            comparisons.append(compare(rows, own_truths, quantity, seconds, kinds[task.label]))
    return comparisons


def measure(
    ready: PreparedAudit, samples: Dataset, draws: int, listener: Listener
) -> tuple[Truths, float]:
    """The reference of every sample at every noise level of the spec, and the seconds it took."""
    engine = on_stream(ready.engine, ready.noises, ready.spec.run.seed, STREAM)
    tasks = _reference_tasks(ready.spec.levels, draws)
    computed = compute(ready, engine, samples, tasks, listener)
    # A row has the share of votes; times the draws, this is their count up to rounding.
    truths = {
        (sample_id, at): share(round(row.value * draws), draws)
        for (sample_id, at, _), row in computed.rows.items()
    }
    return truths, sum(computed.seconds.values())


def _reference_tasks(levels: Sequence[NoiseLevel], draws: int) -> tuple[Task, ...]:
    """The reference's estimator at every noise level."""
    estimator = reference_class().model_validate({"draws": draws})
    return tuple(Task(estimator, STREAM, at) for at in levels)
