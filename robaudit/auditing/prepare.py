"""Load and check everything an audit needs before anything expensive is computed or written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import torch
from torch import nn

from robaudit.auditing.batches import IMAGES, check_rows
from robaudit.auditing.checks import InputCheck, check_input, precision_effects
from robaudit.auditing.chunk_sizes import ChunkSizer
from robaudit.auditing.chunks import NEEDS_LABELS, Worker, needing_labels
from robaudit.auditing.environment import device_name, versions
from robaudit.auditing.preparations import overridden, preparations
from robaudit.auditing.units import Finding, accepted, level_findings, mean_findings, within_unit
from robaudit.datasets.ahead import readers
from robaudit.datasets.dataset import Dataset, Sample, first_samples
from robaudit.datasets.open_dataset import open_dataset
from robaudit.datasets.select import Selected
from robaudit.engine.estimator import Need
from robaudit.engine.passes import Engine, fitting_passes
from robaudit.engine.registry import Task, check_model, refuse_unfit, tasks_of, without_gradients
from robaudit.errors import DataError, ModelError, NothingLeftError, SpecError
from robaudit.levels import NONE
from robaudit.memory import free_bytes, memory_limit
from robaudit.models.formats import Source
from robaudit.models.load_model import from_module, load_model
from robaudit.models.logits import PIXELS, LogitModel, for_noisy_passes
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.installed import build as build_noises
from robaudit.noise.noise import shape_of
from robaudit.noise.process import NoiseProcess
from robaudit.plugins import reference
from robaudit.progress import Listener
from robaudit.runs.info import Measured, ModelInfo, RowBits
from robaudit.spec.model import AuditSpec


@dataclass(frozen=True, slots=True)
class Request:
    """The input for preparing an audit. A worker process gets a copy.

    Attributes:
        spec: what is asked for.
        trust: allow Python code that the spec names.
        skip_bad: skip unusable samples.
        model, dataset: used in place of the spec's, if given.
        share: the share of the machine's free memory to use.
    """

    spec: AuditSpec
    trust: bool = False
    skip_bad: bool = False
    model: nn.Module | None = None
    dataset: Dataset | None = None
    share: float = 1.0


@dataclass(frozen=True, kw_only=True)
class OpenedAudit:
    """An audit whose model is not loaded yet.

    Attributes:
        spec: merged with the existing run's.
        noises: with their options and levels.
        tasks: every estimator at every noise level.
        data: the samples.
    """

    spec: AuditSpec
    noises: tuple[NoiseProcess, ...]
    tasks: tuple[Task, ...]
    data: Dataset

    def again(self, spec: AuditSpec) -> Self:
        """The same audit with other numbers of draws."""
        return replace(self, spec=spec, tasks=tasks_of(spec))


@dataclass(frozen=True, kw_only=True)
class CheckedAudit(OpenedAudit):
    """An audit whose model has been loaded and checked, here or by the workers.

    Attributes:
        info: what run.json says of model, device and the checks.
        seen: pixel digest and label of each image checked, by sample id.
    """

    info: Measured
    seen: Mapping[str, tuple[str, int | None]]


@dataclass(frozen=True, kw_only=True)
class PreparedAudit(CheckedAudit):
    """An audit with its model loaded on a device of this process, and everything checked.

    Attributes:
        engine: model and noise.
        first: the first usable sample.
        readers: threads that read images ahead.
        limit: bytes of main memory the process may use.
    """

    engine: Engine
    first: Sample
    readers: int
    limit: int

    def worker(self) -> Worker:
        """A worker for its chunks. Their size follows a fixed rule if rows depend on the rest of
        their chunk.

        They do if the model mixes the images of a batch, and on CUDA (in the last digits) if the
        run is deterministic.
        """
        engine = self.engine
        device = self.engine.model.device
        steady = (
            self.spec.run.deterministic and device.type == "cuda"
        ) or self.info.rows.kind is RowBits.MIXED
        rows = engine.gradient_rows(shape_of(self.first.pixels), 1)
        least = max(
            (-(-rows // each) for task in self.tasks if (each := task.estimator.rows_at_once)),
            default=1,
        )
        sizer = ChunkSizer(
            self.tasks,
            engine.classes,
            self.first.pixels.numel(),
            None if steady else device,
            self.limit,
            least,
        )
        return Worker(engine, sizer, self.data, self.tasks, self.readers)

    def at_levels(self, listener: Listener) -> PreparedAudit:
        """The same audit without the estimators that have no noise level; a note names them.

        Raises:
            SpecError: nothing is left.
        """
        for label in dict.fromkeys(task.label for task in self.tasks if task.at.level is None):
            listener.note(f"{label} is left out: it has no noise level")
        remaining = tuple(task for task in self.tasks if task.at.level is not None)
        if not remaining:
            raise SpecError(
                self.spec.origin.where or "spec",
                "none of its estimators has a noise level",
                f"add one, such as {reference()}, and noise: {{sigma: 0.05}}",
            )
        return replace(self, tasks=remaining)


def open_audit(request: Request, listener: Listener) -> OpenedAudit:
    """Build estimators and noises, and open the data set.

    Args:
        request: what is asked for.
        listener: receives notes and warnings.

    Raises:
        RobauditError: something is missing, damaged, or does not fit the rest.
    """
    spec = request.spec
    data = request.dataset
    listener.doing("reading the spec")
    noises = build_noises(spec.noise, spec.base_dir, spec.origin)
    tasks = tasks_of(spec)
    refuse_unfit(tasks, {noise.label: noise.noise for noise in noises})
    listener.doing("opening the data set")
    data = (
        data
        if data is not None
        else open_dataset(spec.dataset, base_dir=spec.base_dir, trust=request.trust)
    )
    if len(data) == 0:
        raise NothingLeftError(data.where, "the data set is empty", "give it samples")
    return OpenedAudit(spec=spec, noises=noises, tasks=tasks, data=data)


def prepare(
    request: Request, device: torch.device, listener: Listener, opened: OpenedAudit | None = None
) -> PreparedAudit:
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
    spec = opened.spec
    data = opened.data
    skip_bad = request.skip_bad
    by_gradients = [task for task in opened.tasks if Need.GRADIENTS in task.estimator.needs]
    gradients = bool(by_gradients)
    listener.doing("loading the model")
    network = make_model(spec, request.model, device, trust=request.trust)
    limit = memory_limit(spec.run.memory, request.share)
    for text in (
        *spec.origin.taken,
        *network.notes,
        *(data.notes if isinstance(data, Selected) else ()),
    ):
        listener.note(text)
    if by_gradients and not network.differentiable:
        raise ModelError(
            network.name,
            f"has no gradients, and {by_gradients[0].label} needs them",
            f"use {_without_gradients(by_gradients[0])}another format of the model",
        )
    noisy = for_noisy_passes(network, spec.run.precision)
    listener.doing("checking model and data on the first images")
    scaled = getattr(spec.dataset, "scale", None) is not None
    check = check_input(
        network,
        data,
        gradients=gradients,
        skip_bad=skip_bad,
        as_given=spec.run.as_given,
        scaled=scaled,
        prepared=partial(
            preparations, spec, trust=request.trust, in_memory=request.dataset is not None
        ),
    )
    if (needing := needing_labels(opened.tasks)) and not check.labelled:
        raise DataError(data.where, f"has no labels, and {needing} needs them", NEEDS_LABELS)
    first = list(first_samples(data, IMAGES, skip_bad=skip_bad))
    image = first[0].pixels
    check_noises(opened.noises, image, data)
    findings: list[Finding] = []
    findings += mean_findings(spec.model.mean, spec.model.std, spec.origin.place(("model", "mean")))
    if within_unit(*check.pixels):
        findings += level_findings(opened.noises, image, first[0].id)
    before = (*(data.warnings if isinstance(data, Selected) else ()), *overridden(spec))
    check = replace(
        check, warnings=(*before, *accepted(findings, as_given=spec.run.as_given), *check.warnings)
    )
    _report(check, listener)
    check_model(opened.tasks, network, image)
    listener.doing("measuring memory")
    engine = _engine(spec, opened.noises, network, noisy, check.classes, image, gradients=gradients)
    listener.doing("comparing batches of different sizes")
    rows, unsteady = check_rows(
        engine, torch.stack([sample.pixels for sample in first]), gradients=gradients
    )
    for text in unsteady:
        listener.warn(text)
    info = Measured(
        device=device_name(network.device),
        versions=versions(),
        model=ModelInfo(
            name=network.name,
            format=network.format,
            sha256=network.sha256,
            classes=check.classes,
            notes=list(network.notes),
        ),
        warnings=[*check.warnings, *unsteady],
        rows=rows,
        batch_rows=engine.rows(image.shape),
        image_shape=list(image.shape),
        **_effects(spec, engine, data, listener, skip_bad=skip_bad),
    )
    threads = readers(device, "python" if request.dataset is not None else spec.dataset.kind)
    return PreparedAudit(
        **vars(opened),
        info=info,
        seen=check.seen,
        engine=engine,
        first=first[0],
        readers=threads,
        limit=limit,
    )


def make_model(
    spec: AuditSpec, given: nn.Module | None, device: torch.device, *, trust: bool
) -> LogitModel:
    """The spec's model, or the one given, as a function from pixels to logits.

    Raises:
        ModelError: it cannot be loaded.
    """
    dtype = PIXELS[spec.run.precision]
    options = spec.model
    if given is not None:
        name = getattr(given, "__name__", type(given).__name__)  # of a function, or of the class
        model = from_module(
            given,
            mean=options.mean,
            std=options.std,
            output=options.output,
            dtype=dtype,
            device=device,
            name=name,
        )
    else:
        model = load_model(Source(options, spec.base_dir, device, dtype, trust))
    return model.rounding(spec.run.precision == "tf32")


def _without_gradients(task: Task) -> str:
    """Estimators of the same quantity that work with any model: "mc or softmax, or "; empty where
    there are none."""
    names = without_gradients(task.estimator.quantity)
    return f"{' or '.join(names)}, or " if names else ""


def check_noises(noises: Sequence[NoiseProcess], image: torch.Tensor, dataset: Dataset) -> None:
    """Check that the noises fit the images, before anything is computed.

    Args:
        noises: of the run.
        image: one image, for its shape.
        dataset: the samples.

    Raises:
        DataError: a noise has other labels for the images.
        SpecError: an option of a noise does not fit.
    """
    for noise in noises:
        try:
            noise.check(shape_of(image), _labels_of(dataset))
        except SpecError as error:
            raise SpecError(
                f"noise {noise.label}: {error.where}", error.what, error.remedy
            ) from error


def _labels_of(dataset: Dataset) -> Iterator[tuple[str, int]]:
    """Ids and labels (-1: none), if known without reading pixels; looked up lazily."""
    labels = dataset.labels()
    if labels is not None:
        yield from ((dataset.sample_id(i), int(label)) for i, label in enumerate(labels))


def _engine(
    spec: AuditSpec,
    noises: Sequence[NoiseProcess],
    model: LogitModel,
    noisy: LogitModel,
    classes: int,
    image: torch.Tensor,
    *,
    gradients: bool,
) -> Engine:
    """The spec's engine, with as many rows in a pass as the rule says, or as fit into the memory of
    a CUDA device."""
    sources = _sources(noises, spec.run.seed, model)
    if spec.run.batch_size != "auto":
        return Engine(model, sources, classes, spec.run.batch_size, noisy=noisy)
    fit = None
    if model.device.type == "cuda":
        fit = fitting_passes(noisy, model if gradients else None, image, free_bytes(model.device))
    return Engine(model, sources, classes, noisy=noisy, fit=fit)


def on_stream(engine: Engine, noises: Sequence[NoiseProcess], seed: int, stream: str) -> Engine:
    """The same engine with noise of its own, independent of the run's noise and of other streams.

    Args:
        engine: model, noise and sizes of the run.
        noises: of the run.
        seed: the run's seed.
        stream: the name of the stream.
    """
    other = copy(engine)
    other.noises = _sources(noises, seed, engine.model, stream)
    return other


def _sources(
    noises: Sequence[NoiseProcess], seed: int, model: LogitModel, stream: str = ""
) -> dict[str | None, NoiseProcess]:
    """The noises by label, and under None the RNG for noise-free estimators."""
    bare = NoiseProcess(Gaussian(), NONE, seed, model.device, model.dtype, stream=stream)
    return {
        None: bare,
        **{
            noise.label: noise.seeded(seed, model.device, model.dtype, stream=stream)
            for noise in noises
        },
    }


def _effects(
    spec: AuditSpec, engine: Engine, dataset: Dataset, listener: Listener, *, skip_bad: bool
) -> dict[str, Any]:
    """What a lower precision changes, for run.json."""
    precision = spec.run.precision
    if precision not in ("tf32", "bf16"):
        return {}
    if precision == "tf32" and engine.model.device.type == "cpu":
        listener.warn("precision tf32 needs CUDA: on the CPU this run computes in fp32")
        return {}
    return {
        "precision_effect": precision_effects(
            engine, dataset, spec.levels, precision, listener, skip_bad=skip_bad
        )
    }


def _report(check: InputCheck, listener: Listener) -> None:
    if check.labelled:
        listener.note(
            f"clean accuracy {check.correct / check.labelled:.1%} ({check.correct} of the first "
            f"{check.labelled} labelled images)"
        )
    else:
        listener.note("no labels: accuracy is not measured; robustness needs none")
    for text in check.warnings:
        listener.warn(text)
