"""Load and check everything an audit needs before anything expensive is computed or written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from robaudit.auditing.batches import IMAGES, RowCheck, check_rows
from robaudit.auditing.checks import InputCheck, check_input, precision_effects
from robaudit.auditing.chunks import NEEDS_LABELS, needing_labels
from robaudit.auditing.environment import device_name, versions
from robaudit.auditing.loop import OnError, ThisProcess, compute_missing
from robaudit.auditing.resume import refuse_another_machine
from robaudit.auditing.setup import ChunkSizer, check_noises, make_engine, make_model, make_sizer
from robaudit.auditing.units import accepted, level_findings, within_unit
from robaudit.datasets.ahead import default_workers
from robaudit.datasets.base import Dataset, Sample, first_samples
from robaudit.datasets.load import open_dataset
from robaudit.errors import DataError, ModelError, NothingLeftError, SpecError
from robaudit.estimators.base import Need
from robaudit.estimators.engine import Engine
from robaudit.estimators.registry import Task, check_model, refuse_unfit, tasks_of
from robaudit.memory import memory_limit
from robaudit.models.logits import for_noisy_passes
from robaudit.noise.registry import Noise
from robaudit.noise.registry import build as build_noises
from robaudit.progress import Listener
from robaudit.quantities import LOSS, RADIUS
from robaudit.spec.model import AuditSpec
from robaudit.store.info import RowBits
from robaudit.store.state import State

_WITHOUT_GRADIENTS = {LOSS.name: "qnorm_mc", RADIUS.name: "radius_random"}
"""For each quantity, an estimator that works with any model."""


@dataclass(frozen=True, slots=True)
class Request:
    """The input for preparing an audit. A worker process gets a copy.

    Attributes:
        spec: what is asked for.
        old: run.json of the run to continue, if there is one.
        folder: the run's folder, for messages.
        trust: allow Python code that the spec names.
        skip_bad: skip unusable samples.
        model, dataset: used in place of the spec's, if given.
        share: the share of the machine's free memory to use.
    """

    spec: AuditSpec
    old: Mapping[str, Any] | None = None
    folder: str = ""
    trust: bool = False
    skip_bad: bool = False
    model: nn.Module | None = None
    dataset: Dataset | None = None
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known once the model is loaded. Workers send it.

    Attributes:
        device: see :func:`robaudit.auditing.environment.device_name`.
        versions: of Python and packages.
        model: name, format, sha256, number of classes and notes.
        check: the check of the first images.
        rows: how an image's logits depend on the batch.
        image_shape: (channels, height, width).
        batch_rows: rows in a pass.
        effects: the effect of a lower precision, for run.json.
    """

    device: str
    versions: Mapping[str, str | None]
    model: Mapping[str, Any]
    check: InputCheck
    rows: RowCheck
    image_shape: tuple[int, ...]
    batch_rows: int
    effects: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OpenedAudit:
    """An audit before its model is loaded.

    Attributes:
        spec: merged with the existing run's.
        noises: with their options and levels.
        tasks: every estimator at every noise level.
        samples: the data set.
        kind: of the data set; ``python`` for objects in memory.
    """

    spec: AuditSpec
    noises: tuple[Noise, ...]
    tasks: tuple[Task, ...]
    samples: Dataset
    kind: str


@dataclass(frozen=True, slots=True)
class PreparedAudit:
    """An audit with its model loaded on a device of this process, and everything checked.

    Attributes:
        spec, noises, tasks, samples: see :class:`OpenedAudit`.
        readers: threads that read images ahead.
        engine: model and noise.
        first: the first usable sample.
        limit: bytes of main memory the process may use.
        facts: what is known of model, data and device.
    """

    spec: AuditSpec
    noises: tuple[Noise, ...]
    tasks: tuple[Task, ...]
    samples: Dataset
    readers: int
    engine: Engine
    first: Sample
    limit: int
    facts: Facts

    def sizer(self) -> ChunkSizer:
        """The chunk sizes."""
        mixed = self.facts.rows.bits is RowBits.MIXED
        return make_sizer(self.spec, self.engine, self.tasks, self.first.pixels, self.limit, mixed=mixed)

    def at_levels(self, listener: Listener) -> PreparedAudit:
        """The same audit without the estimators that have no noise level; a note names them.

        Raises:
            SpecError: nothing is left.
        """
        for label in dict.fromkeys(task.label for task in self.tasks if task.at.level is None):
            listener.note(f"{label} is left out: it has no noise level")
        kept = tuple(task for task in self.tasks if task.at.level is not None)
        if not kept:
            raise SpecError(
                self.spec.origin.where or "spec",
                "none of its estimators has a noise level",
                "add one, such as mc, and noise: {sigma: 0.05}",
            )
        return replace(self, tasks=kept)

    def compute_missing(self, state: State, listener: Listener, on_error: OnError) -> int:
        """Compute what a state lacks; see the function of the same name."""
        here = ThisProcess(self.engine, self.sizer(), self.samples.where)
        return compute_missing(state, self.samples, self.tasks, here, listener, on_error=on_error, readers=self.readers)


def open_audit(request: Request, listener: Listener) -> OpenedAudit:
    """Build estimators and noises, and open the data set.

    Args:
        request: what is asked for.
        listener: receives notes and warnings.

    Raises:
        RobauditError: something is missing, damaged, or does not fit the rest.
    """
    spec, dataset = request.spec, request.dataset
    listener.doing("reading the spec")
    noises = build_noises(spec.noise, spec.base_dir, spec.origin)
    tasks = tasks_of(spec)
    refuse_unfit(tasks, {noise.label: noise.form for noise in noises})
    listener.doing("opening the data set")
    samples = dataset if dataset is not None else open_dataset(spec.dataset, base_dir=spec.base_dir, trust=request.trust)
    if len(samples) == 0:
        raise NothingLeftError(samples.where, "the data set is empty", "give it samples")
    return OpenedAudit(spec, noises, tasks, samples, spec.dataset.kind if dataset is None else "python")


def prepare(request: Request, device: torch.device, listener: Listener, opened: OpenedAudit | None = None) -> PreparedAudit:
    """Load and check everything before anything expensive is computed or written.

    Args:
        request: what is asked for.
        device: where to compute.
        listener: receives notes and warnings.
        opened: the audit, if :func:`open_audit` has opened it already.

    Raises:
        RobauditError: something is missing, damaged, or does not fit the rest, or memory runs out.
    """
    opened = opened or open_audit(request, listener)
    spec, samples, skip_bad = opened.spec, opened.samples, request.skip_bad
    by_gradients = [task for task in opened.tasks if Need.GRADIENTS in task.estimator.needs]
    gradients = bool(by_gradients)
    listener.doing("loading the model")
    network = make_model(spec, request.model, device, trust=request.trust)
    limit = memory_limit(spec.run.memory, request.share)
    if request.old is not None:
        refuse_another_machine(request.old, network, device, request.folder, listener)
    for text in (*spec.origin.taken, *network.notes):
        listener.note(text)
    if by_gradients and not network.differentiable:
        raise ModelError(
            network.name,
            f"has no gradients, and {by_gradients[0].label} needs them",
            f"use {_WITHOUT_GRADIENTS.get(by_gradients[0].estimator.quantity.name, 'mc or softmax')}, or another format of the model",
        )
    noisy = for_noisy_passes(network, spec.run.precision)
    listener.doing("checking model and data on the first images")
    scaled = getattr(spec.dataset, "scale", None) is not None
    check = check_input(network, samples, gradients=gradients, skip_bad=skip_bad, as_given=spec.run.as_given, scaled=scaled)
    if (needing := needing_labels(opened.tasks)) and not check.labelled:
        raise DataError(samples.where, f"has no labels, and {needing} needs them", NEEDS_LABELS)
    first = list(first_samples(samples, IMAGES, skip_bad=skip_bad))
    image = first[0].pixels
    check_noises(opened.noises, image, samples)
    findings = level_findings(opened.noises, image, first[0].id) if within_unit(*check.pixels) else ()
    check = replace(check, warnings=(*accepted(findings, as_given=spec.run.as_given), *check.warnings))
    _report(check, listener)
    check_model(opened.tasks, network, image)
    listener.doing("measuring memory")
    engine = make_engine(spec, opened.noises, network, noisy, check.classes, image, limit, gradients=gradients)
    listener.doing("comparing batches of different sizes")
    rows = check_rows(engine, torch.stack([sample.pixels for sample in first]), gradients=gradients)
    unsteady = rows.warnings(network.name)
    for text in unsteady:
        listener.warn(text)
    facts = Facts(
        device=device_name(network.device),
        versions=versions(),
        model={
            "name": network.name,
            "format": network.format,
            "sha256": network.sha256,
            "classes": check.classes,
            "notes": list(network.notes),
        },
        check=replace(check, warnings=(*check.warnings, *unsteady)),
        rows=rows,
        image_shape=tuple(image.shape),
        batch_rows=engine.rows(image.shape),
        effects=_effects(spec, engine, samples, listener, skip_bad=skip_bad),
    )
    readers = default_workers(spec.run.workers, device, opened.kind)
    return PreparedAudit(spec, opened.noises, opened.tasks, samples, readers, engine, first[0], limit, facts)


def _effects(spec: AuditSpec, engine: Engine, dataset: Dataset, listener: Listener, *, skip_bad: bool) -> dict[str, Any]:
    """What a lower precision changes, for run.json."""
    precision = spec.run.precision
    if precision not in ("tf32", "bf16"):
        return {}
    if precision == "tf32" and engine.model.device.type == "cpu":
        listener.warn("precision tf32 needs CUDA: on the CPU this run computes in fp32")
        return {}
    effects = precision_effects(engine, dataset, spec.levels, precision, skip_bad=skip_bad)
    for effect in effects:
        listener.note(effect.text)
    return {"precision_effect": [effect.document() for effect in effects]}


def _report(check: InputCheck, listener: Listener) -> None:
    if check.labelled:
        listener.note(
            f"clean accuracy {check.correct / check.labelled:.1%} ({check.correct} of the first {check.labelled} labelled images)"
        )
    else:
        listener.note("no labels: accuracy is not measured; robustness needs none")
    for text in check.warnings:
        listener.warn(text)
