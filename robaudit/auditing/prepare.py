"""Load and check everything an audit needs before anything expensive is computed or written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from robaudit.auditing.batches import IMAGES, check_rows
from robaudit.auditing.checks import InputCheck, check_input, precision_effects
from robaudit.auditing.chunk_sizes import ChunkSizer
from robaudit.auditing.chunks import NEEDS_LABELS, Worker, needing_labels
from robaudit.auditing.environment import device_name, versions
from robaudit.auditing.preparations import overridden, preparations
from robaudit.auditing.remembered import RememberedImages
from robaudit.auditing.rounds import rounds_of
from robaudit.auditing.units import Finding, accepted, level_findings, mean_findings, within_unit
from robaudit.datasets.ahead import readers
from robaudit.datasets.dataset import Dataset, Sample, first_samples
from robaudit.datasets.open_dataset import open_dataset
from robaudit.datasets.photos import image_files
from robaudit.datasets.select import Selected
from robaudit.engine.estimator import Need
from robaudit.engine.passes import Engine, fitting_passes
from robaudit.engine.registry import Task, check_model, refuse_unfit, tasks_of, without_gradients
from robaudit.errors import DataError, ModelError, NothingLeftError, SpecError
from robaudit.forms import Form, FormName
from robaudit.levels import FILE, NONE
from robaudit.memory import free_bytes, memory_limit, used
from robaudit.models.formats import Source
from robaudit.models.load_model import from_module, load_model
from robaudit.models.logits import PIXELS, LogitModel, for_noisy_passes
from robaudit.models.network_forms import layout_of
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.installed import build as build_noises
from robaudit.noise.noise import shape_of
from robaudit.noise.process import NoiseProcess
from robaudit.plugins import reference
from robaudit.progress import Listener
from robaudit.runs.info import FormReason, Measured, ModelInfo, NetworkForm, RowBits
from robaudit.spec.model import AuditSpec, BaseDatasetSpec, ImageOptions
from robaudit.text import count

_REMEMBERED_SHARE = 0.25  # of the free memory, for decoded images
_LOOKED_AT = 64  # image files, whose headers have an orientation


@dataclass(frozen=True, slots=True)
class Request:
    """The input for preparing an audit. A worker process gets a copy.

    Attributes:
        spec: of the audit.
        trust: whether Python code that the spec names may run.
        skip_bad: whether to skip unusable samples.
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
        spec: of the audit; if it extends a run, of both.
        noises: with their options and levels.
        tasks: every estimator at every noise level.
        data: the samples.
    """

    spec: AuditSpec
    noises: tuple[NoiseProcess, ...]
    tasks: tuple[Task, ...]
    data: Dataset


@dataclass(frozen=True, kw_only=True)
class CheckedAudit(OpenedAudit):
    """An audit whose model has been loaded and checked, here or by the workers.

    Attributes:
        info: the part of run.json about model, device and the checks.
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
        """A worker for the audit's chunks. Their size follows a fixed rule where the results of an
        image depend on the rest of its chunk, and the measured time and memory elsewhere.

        They depend on it if the model mixes the images of a batch, and, in the last digits, on
        CUDA. There a run that is to be deterministic needs the fixed rule.
        """
        engine = self.engine
        device = engine.model.device
        mixed = self.info.rows.kind is RowBits.MIXED
        same_bits_on_cuda = self.spec.run.deterministic and device.type == "cuda"
        fixed_sizes = mixed or same_bits_on_cuda
        # Estimators that run chains pass a few rows of each image at once: so many images fill a
        # pass.
        rows = engine.gradient_rows(shape_of(self.first.pixels), 1)
        least = 1
        for task in self.tasks:
            rows_of_image = task.estimator.rows_at_once
            if rows_of_image:
                least = max(least, -(-rows // rows_of_image))
        sizer = ChunkSizer(
            self.tasks,
            engine.classes,
            self.first.pixels.numel(),
            None if fixed_sizes else device,
            self.limit,
            least,
            engine.rows(shape_of(self.first.pixels)),
        )
        data: Dataset = self.data
        # Files are decoded once, if their images fit into memory: each round needs them again.
        if isinstance(self.spec.dataset, ImageOptions) and len(rounds_of(self.tasks)) > 1:
            room = max(0, int(_REMEMBERED_SHARE * (self.limit - used())))
            data = RememberedImages(data, room, sizer)
        return Worker(engine, sizer, data, self.tasks, self.readers)

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
        request: the input.
        listener: receives notes and warnings.

    Raises:
        RobauditError: something is missing, damaged, or does not fit the rest.
    """
    spec = request.spec
    # The spec's own mistakes first: they are found at once.
    listener.doing("reading the spec")
    noises = build_noises(spec.noise, spec.base_dir, spec.origin)
    tasks = tasks_of(spec)
    refuse_unfit(tasks, {noise.label: noise.noise for noise in noises})
    listener.doing("opening the data set")
    data = request.dataset
    if data is None:
        data = open_dataset(spec.dataset, base_dir=spec.base_dir, trust=request.trust)
    if len(data) == 0:
        raise NothingLeftError(data.where, "the data set is empty", "give it samples")
    noises = with_files(noises, spec.dataset, spec.base_dir, trust=request.trust)
    return OpenedAudit(spec=spec, noises=noises, tasks=tasks, data=data)


def with_files(
    noises: Sequence[NoiseProcess], spec: BaseDatasetSpec, base_dir: Path, *, trust: bool
) -> tuple[NoiseProcess, ...]:
    """The noises of a run; those on files know the files.

    Args:
        noises: of the run.
        spec: the dataset section.
        base_dir: the base of its relative paths.
        trust: whether Python code named in the spec may run.

    Raises:
        SpecError: the data have no image files.
    """
    on_files = [noise for noise in noises if noise.noise.on_file]
    if not on_files:
        return tuple(noises)
    if not isinstance(spec, ImageOptions):
        raise SpecError(
            f"noise {on_files[0].label}",
            f"at: {FILE} is for image files, and data of kind {spec.kind} have none",
            "leave at out, or give the files: kind images, csv, hf or torchvision",
        )
    files = image_files(spec, base_dir, trust=trust)
    return tuple(replace(noise, photos=files) if noise in on_files else noise for noise in noises)


def prepare(
    request: Request, device: torch.device, listener: Listener, opened: OpenedAudit | None = None
) -> PreparedAudit:
    """Load and check everything before anything expensive is computed or written.

    Args:
        request: the input.
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
    in_memory = request.dataset is not None
    listener.doing("loading the model")
    network = make_model(spec, request.model, device, trust=request.trust)
    # Once the model is loaded: the limit starts from what the process then holds.
    limit = memory_limit(spec.run.memory, request.share)
    data_notes = data.notes if isinstance(data, Selected) else ()
    for text in (*spec.origin.taken, *network.notes, *data_notes):
        listener.note(text)
    gradients = _gradients_needed(opened.tasks, network)
    noisy = for_noisy_passes(network, spec.run.precision)
    # From cheap to expensive: first a pass of some images, then checks of each estimator, then
    # measurements.
    listener.doing("checking model and data on the first images")
    check = check_input(
        network,
        data,
        gradients=gradients,
        skip_bad=skip_bad,
        as_given=spec.run.as_given,
        scaled=getattr(spec.dataset, "scale", None) is not None,
        prepared=partial(preparations, spec, trust=request.trust, in_memory=in_memory),
    )
    needing = needing_labels(opened.tasks)
    if needing and not check.labelled:
        raise DataError(data.where, f"has no labels, and {needing} needs them", NEEDS_LABELS)
    first = list(first_samples(data, IMAGES, skip_bad=skip_bad))
    image = first[0].pixels
    check_noises(opened.noises, first[0], data)
    check = replace(check, warnings=(*_warnings_of_spec(opened, check, first[0]), *check.warnings))
    for text in _turned_upright(data):
        listener.note(text)
    _report(check, listener)
    check_model(opened.tasks, network, image)
    listener.doing("measuring memory")
    engine = _engine(spec, opened.noises, network, noisy, check.classes, image, gradients=gradients)
    # With the engine, whose batch sizes are those of the run.
    listener.doing("comparing batches of different sizes")
    rows, row_warnings = check_rows(
        engine, torch.stack([sample.pixels for sample in first]), gradients=gradients
    )
    for text in row_warnings:
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
        warnings=[*check.warnings, *row_warnings],
        rows=rows,
        batch_rows=engine.rows(image.shape),
        form=NetworkForm.of(
            Form(FormName.AS_LOADED, layout_of(noisy), engine.rows(image.shape)), FormReason.SHORT
        ),
        image_shape=list(image.shape),
        **_effects(spec, engine, data, listener, skip_bad=skip_bad),
    )
    return PreparedAudit(
        **vars(opened),
        info=info,
        seen=check.seen,
        engine=engine,
        first=first[0],
        readers=readers(device, "python" if in_memory else spec.dataset.kind),
        limit=limit,
    )


def _gradients_needed(tasks: Sequence[Task], network: LogitModel) -> bool:
    """Whether an estimator needs gradients.

    Raises:
        ModelError: one needs gradients, and the model has none.
    """
    tasks_with_gradients = [task for task in tasks if Need.GRADIENTS in task.estimator.needs]
    if tasks_with_gradients and not network.differentiable:
        first = tasks_with_gradients[0]
        raise ModelError(
            network.name,
            f"has no gradients, and {first.label} needs them",
            f"use {_estimators_without_gradients(first)}another format of the model",
        )
    return bool(tasks_with_gradients)


def _warnings_of_spec(opened: OpenedAudit, check: InputCheck, first: Sample) -> Iterator[str]:
    """Warnings about the selection of the data, and about mean, std and levels in the spec.

    Raises:
        RobauditError: a mean or a level is impossible, and not accepted as it is given.
    """
    spec = opened.spec
    data = opened.data
    if isinstance(data, Selected):
        yield from data.warnings
    yield from overridden(spec)
    findings: list[Finding] = []
    findings += mean_findings(spec.model.mean, spec.model.std, spec.origin.place(("model", "mean")))
    # Levels are judged by what they do to pixels in [0, 1]; of others, the input check has warned.
    if within_unit(*check.pixels):
        findings += level_findings(opened.noises, first.pixels, first.id)
    yield from accepted(findings, as_given=spec.run.as_given)


def _turned_upright(data: Dataset) -> Iterator[str]:
    """A note on photos that are turned upright, which not all loaders of images do."""
    looked_at = min(len(data), _LOOKED_AT)
    if not isinstance(data, Selected) or not looked_at:
        return
    turned = sum(map(data.is_turned, range(looked_at)))
    if turned:
        yield (
            f"{data.where}: {turned} of the first {count(looked_at, 'image')} are turned upright "
            "by their EXIF orientation, as viewers show them; timm's and torchvision's loaders do "
            "not turn them"
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


def _estimators_without_gradients(task: Task) -> str:
    """Estimators of the same quantity that work with any model: "mc or softmax, or "; empty where
    there are none."""
    names = without_gradients(task.estimator.quantity)
    return f"{' or '.join(names)}, or " if names else ""


def check_noises(noises: Sequence[NoiseProcess], sample: Sample, dataset: Dataset) -> None:
    """Check that the noises fit the images, before anything is computed.

    Args:
        noises: of the run.
        sample: one, for the shape of its image, or of its file.
        dataset: the samples.

    Raises:
        DataError: a noise has other labels for the images.
        SpecError: an option of a noise does not fit.
    """
    for noise in noises:
        try:
            # A new iterator for each noise: most read no label, and none reads a pixel.
            noise.check(sample.id, shape_of(sample.pixels), _labels_of(dataset))
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
    """The spec's engine.

    A pass has as many rows as the spec says, by default as the rule for CPUs says or as fit into
    the memory of a CUDA device.
    """
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
    # A shallow copy: the model, which takes the memory, is the same.
    other = copy(engine)
    other.noises = _sources(noises, seed, engine.model, stream)
    return other


def _sources(
    noises: Sequence[NoiseProcess], seed: int, model: LogitModel, stream: str = ""
) -> dict[str | None, NoiseProcess]:
    """The noises by label, and under None the random numbers of estimators without a noise."""
    without_noise = NoiseProcess(Gaussian(), NONE, seed, model.device, model.dtype, stream=stream)
    sources: dict[str | None, NoiseProcess] = {None: without_noise}
    for noise in noises:
        sources[noise.label] = noise.seeded(seed, model.device, model.dtype, stream=stream)
    return sources


def _effects(
    spec: AuditSpec, engine: Engine, dataset: Dataset, listener: Listener, *, skip_bad: bool
) -> dict[str, Any]:
    """The measured effect of a lower precision, as a field of run.json; empty in fp32 and above."""
    precision = spec.run.precision
    if precision not in ("tf32", "bf16"):
        return {}
    if precision == "tf32" and engine.model.device.type == "cpu":
        listener.warn("precision tf32 needs CUDA: on the CPU this run computes in fp32")
        return {}
    effects = precision_effects(
        engine, dataset, spec.levels, precision, listener, skip_bad=skip_bad
    )
    return {"precision_effect": effects}


def _report(check: InputCheck, listener: Listener) -> None:
    """Tell the listener the clean accuracy and the warnings of the input check."""
    if check.labelled:
        images = f"the first {check.labelled} labelled images"
        if check.part:
            images = f"{check.labelled} labelled images, drawn at random"
        listener.note(
            f"clean accuracy {check.correct / check.labelled:.1%} ({check.correct} of {images})"
        )
    else:
        listener.note("no labels: accuracy is not measured; robustness needs none")
    for text in check.warnings:
        listener.warn(text)
