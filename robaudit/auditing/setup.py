"""Make the model, the engine and the chunk sizes that a spec asks for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import copy

import torch
from torch import nn

from robaudit.datasets.base import Dataset
from robaudit.errors import SpecError
from robaudit.estimators.engine import Engine, fitting_rows
from robaudit.estimators.registry import Task
from robaudit.levels import NONE, NoiseLevel
from robaudit.memory import free_bytes, peak, reset_peak, used
from robaudit.models.files import model_path
from robaudit.models.load import from_module, load_model
from robaudit.models.logits import PIXELS, LogitModel
from robaudit.noise.base import shape_of
from robaudit.noise.draws import NormalDraws
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.registry import Noise, NoiseSource
from robaudit.spec.model import AuditSpec

MOST_IMAGES = 1024
FLUSH_ROWS = 4096
"""Results that go to disk at once, roughly."""
CHUNK_SECONDS = 2.0
"""Target time of a chunk's longest step: results go to disk between steps."""
_STEADY_VALUES = 2**25  # pixel values through the network in a chunk of fixed size: 10,000 passes at 3 x 32 x 32
_STEADY_IMAGES = 64
_GROWTH = 8  # a chunk has at most this many times the images of the last one measured
_CHUNK_SHARE = 0.5  # of the free memory: images differ, and the C library leaves gaps between blocks


class Gauge:
    """Memory on a device: what chunks may use, and what a chunk has used.

    Args:
        device: where chunks are computed.
        limit: bytes of main memory that the process may hold; on a CUDA device its free memory counts instead.

    Attributes:
        free: bytes for a chunk of images and its passes: half of what is free at the start.
    """

    def __init__(self, device: torch.device, limit: int) -> None:
        reset_peak(device)
        self._device, self._before = device, used(device)
        self.free = max(0, int(_CHUNK_SHARE * (limit - self._before if device.type == "cpu" else free_bytes(device))))

    def begin(self) -> None:
        """Start measuring a chunk."""
        reset_peak(self._device)

    def taken(self) -> int:
        """Bytes in use at the peak since :meth:`begin`, beyond those in use at the start of the run."""
        return max(1, peak(self._device) - self._before)


class ChunkSizer:
    """The size of chunks: as many images as take about two seconds and fit into memory, judging by the last chunk.

    The first chunk of each set of tasks is a single image, or as many as fill a pass. Without a gauge the size depends on the arguments
    alone, for models and devices whose rows depend on the rest of the chunk.

    Attributes:
        most: images at most, after failed allocations.
        least: images that fill a pass; fewer save hardly any time.

    Args:
        tasks: every estimator at every noise level.
        classes: number of logits.
        values: in one image: channels * height * width.
        gauge: of the memory; None where the size must follow a fixed rule.
        least: images that fill a pass of the tasks' chains; this many need no more memory than a pass.
    """

    def __init__(self, tasks: Sequence[Task], classes: int, values: int, gauge: Gauge | None = None, least: int = 1) -> None:
        self.most = max(1, min(MOST_IMAGES, FLUSH_ROWS // max(1, sum(len(task.names) for task in tasks))))
        self.least = min(self.most, least)
        self._gauge = gauge
        self._sizes: dict[frozenset[tuple[NoiseLevel, str]], int] = {}
        self._first = self.least
        if gauge is None:
            passes = max((task.cost(classes) for task in tasks), default=1)
            wanted = _STEADY_VALUES // (max(1, passes) * max(1, values))
            self._first = max(self.least, min(self.most, _STEADY_IMAGES, 2 ** math.floor(math.log2(max(1, wanted)))))

    def next_images(self, tasks: Sequence[Task]) -> int:
        """Number of images for the next chunk."""
        return min(self.most, self._sizes.get(_key(tasks), self._first))

    def begin(self) -> None:
        """Start measuring a chunk."""
        if self._gauge is not None:
            self._gauge.begin()

    def took(self, tasks: Sequence[Task], images: int, longest: float) -> None:
        """Adjust the size to the time and memory of a chunk.

        Args:
            tasks: of the chunk.
            images: number of images; a smaller chunk than asked for (the last of a run) is ignored.
            longest: seconds of its longest step.
        """
        if self._gauge is None or images < self.next_images(tasks):
            return
        fitting = images * self._gauge.free // self._gauge.taken()
        quick = max(self.least, int(images * CHUNK_SECONDS / max(longest, 1e-9)))
        self._sizes[_key(tasks)] = max(1, min(self.most, _GROWTH * images, fitting, quick))

    def shrink(self, images: int) -> None:
        """Halve the size from now on: this many images did not fit into memory."""
        self.most = max(1, images // 2)
        self.least = min(self.least, self.most)


def _key(tasks: Sequence[Task]) -> frozenset[tuple[NoiseLevel, str]]:
    return frozenset((task.at, task.label) for task in tasks)


def make_model(spec: AuditSpec, given: nn.Module | None, device: torch.device, *, trust: bool) -> LogitModel:
    """The spec's model, or the one given, as a function from pixels to logits.

    Raises:
        ModelError: it cannot be loaded.
    """
    dtype = PIXELS[spec.run.precision]
    options = spec.model
    if given is not None:
        name = getattr(given, "__name__", type(given).__name__)  # of a function, or of the class
        model = from_module(given, mean=options.mean, std=options.std, output=options.output, dtype=dtype, device=device, name=name)
    else:
        path = model_path(options, spec.base_dir)
        model = load_model(options, path, base_dir=spec.base_dir, device=device, dtype=dtype, trust=trust)
    return model.rounding(spec.run.precision == "tf32")


def check_noises(noises: Sequence[Noise], image: torch.Tensor, dataset: Dataset) -> None:
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
            raise SpecError(f"noise {noise.label}: {error.where}", error.what, error.remedy) from error


def _labels_of(dataset: Dataset) -> Iterator[tuple[str, int]]:
    """Ids and labels (-1: none), if known without reading pixels; looked up lazily."""
    labels = dataset.labels()
    if labels is not None:
        yield from ((dataset.sample_id(i), int(label)) for i, label in enumerate(labels))


def make_engine(
    spec: AuditSpec,
    noises: Sequence[Noise],
    model: LogitModel,
    noisy: LogitModel,
    classes: int,
    image: torch.Tensor,
    limit: int,
    *,
    gradients: bool,
) -> Engine:
    """The spec's engine, with as many rows in a pass as the rule allows or fit into memory.

    Args:
        spec: seed, batch size and determinism.
        noises: of the run.
        model: for clean passes and gradients.
        noisy: for noisy passes without gradients.
        classes: number of logits.
        image: one image, for its shape.
        limit: bytes of main memory that the process may hold.
        gradients: whether an estimator needs them.
    """
    sources = sources_of(noises, spec.run.seed, model)
    if spec.run.batch_size != "auto":
        return Engine(model, sources, classes, spec.run.batch_size, noisy=noisy)
    free = free_bytes(model.device) if model.device.type == "cuda" else limit - used()
    fit = fitting_rows(noisy, model if gradients else None, image, free)
    return Engine(model, sources, classes, noisy=noisy, fit=fit, free=free)


def on_stream(engine: Engine, noises: Sequence[Noise], seed: int, stream: str) -> Engine:
    """The same engine with noise of its own, independent of the run's noise and of other streams.

    Args:
        engine: model, noise and sizes of the run.
        noises: of the run.
        seed: the run's seed.
        stream: the name of the stream.
    """
    other = copy(engine)
    other.noises = sources_of(noises, seed, engine.model, stream)
    return other


def sources_of(noises: Sequence[Noise], seed: int, model: LogitModel, stream: str = "") -> dict[str | None, NoiseSource]:
    """The noises by label, and under None the RNG for noise-free estimators."""
    bare = NoiseSource(Gaussian(), NormalDraws(NONE, seed, model.device, model.dtype, stream=stream))
    return {None: bare, **{noise.label: noise.source(seed, model.device, model.dtype, stream=stream) for noise in noises}}


def make_sizer(spec: AuditSpec, engine: Engine, tasks: Sequence[Task], image: torch.Tensor, limit: int, *, mixed: bool) -> ChunkSizer:
    """The chunk sizes of the spec's run.

    They follow a fixed rule if rows depend on the rest of their chunk: if the model mixes the images of a batch, and on CUDA (in
    the last digits) if the run is deterministic.
    """
    device = engine.model.device
    steady = (spec.run.deterministic and device.type == "cuda") or mixed
    rows = engine.gradient_rows(shape_of(image), 1)
    least = max((-(-rows // each) for task in tasks if (each := task.estimator.rows_at_once)), default=1)
    return ChunkSizer(tasks, engine.classes, image.numel(), None if steady else Gauge(device, limit), least)
