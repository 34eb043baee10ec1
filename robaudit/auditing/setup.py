"""Make the model, the engine and the chunk sizes that a spec asks for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import copy

import torch
from torch import nn

from robaudit.datasets.base import Dataset
from robaudit.errors import SpecError
from robaudit.estimators.engine import Engine, fitting_passes
from robaudit.estimators.registry import Task
from robaudit.levels import NO_NOISE, NoiseLevel
from robaudit.memory import Headroom, Limit, free_bytes
from robaudit.models.load import from_module, load_model
from robaudit.models.logits import PIXELS, LogitModel
from robaudit.noise.base import shape_of
from robaudit.noise.draws import NormalDraws
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.registry import Noise, NoiseSource
from robaudit.spec.model import AuditSpec
from robaudit.spec.pretrained.folder import model_path

MOST_IMAGES = 1024
_FIRST_VALUES = 2**22  # pixel values through the network in the first chunk: 1,365 passes at 3 x 32 x 32
_STEADY_VALUES = 2**25  # the same where the size must follow a fixed rule: 10,000 passes at 3 x 32 x 32
_STEADY_IMAGES = 64
FLUSH_ROWS = 4096
"""Results that go to disk at once, roughly."""
_SHORT, _LONG = 0.6, 2.0  # seconds
_GROWTH = 8  # a chunk has at most this many times the images of the largest one measured
_TIGHT = 2**31  # bytes; with less free memory, freed blocks are returned during the run, which costs a few percent of its time


class Pace:
    """The size of the chunks: as many images as take about a second and, judging by the memory earlier chunks took, fit.

    The first chunk of each set of tasks is a single image; later ones grow as far as the measured bytes allow. Without a headroom the
    size depends on the arguments alone, for models and devices whose rows depend on the rest of the chunk: everything an image needs
    is computed from its passes, so a bound on the values in them bounds its memory.

    Attributes:
        images: how many the next chunk may have, judging by time alone.
        most: how many at most, after failed allocations.
        least: images that fill a pass; fewer save hardly any time.

    Args:
        tasks: every estimator at every noise level.
        classes: number of logits.
        values: in one image: channels * height * width.
        headroom: the free memory; None where the size must follow a fixed rule.
        least: images that fill a pass of the tasks' chains; fewer save hardly any time, and so many take no more memory than a pass does.
    """

    def __init__(self, tasks: Sequence[Task], classes: int, values: int, headroom: Headroom | None = None, least: int = 1) -> None:
        passes = max((task.cost(classes) for task in tasks), default=1)
        wanted = (_STEADY_VALUES if headroom is None else _FIRST_VALUES) // (max(1, passes) * max(1, values))
        self.most = max(1, min(MOST_IMAGES, FLUSH_ROWS // max(1, sum(len(task.names) for task in tasks))))
        self.least = min(self.most, least)
        self.images: int = max(self.least, min(self.most, _STEADY_IMAGES, 2 ** math.floor(math.log2(max(1, wanted)))))
        self._headroom = headroom
        self._measured: dict[frozenset[tuple[NoiseLevel, str]], tuple[int, int]] = {}

    def allowed(self, tasks: Sequence[Task]) -> int:
        """How many images fit into memory with these tasks."""
        if self._headroom is None:
            return self.most
        asked = _key(tasks)
        fitting = [self._fitting(images, taken) for key, (images, taken) in self._measured.items() if asked <= key]
        return max(1, min(self.most, max(fitting, default=self.least)))

    def next_images(self, tasks: Sequence[Task]) -> int:
        """How many images the next chunk should have."""
        return min(self.images, self.allowed(tasks))

    def begin(self) -> None:
        """Start measuring the peak of a chunk."""
        if self._headroom is not None:
            self._headroom.watch()

    def fitted(self, tasks: Sequence[Task], images: int) -> None:
        """Record the memory that a chunk of this many images took for these tasks."""
        if self._headroom is not None:
            before = self._measured.get(_key(tasks), (0, 0))
            self._measured[_key(tasks)] = (max(before[0], images), max(before[1], self._headroom.taken()))

    def took(self, images: int, longest: float) -> None:
        """Adjust the size to the time that a chunk took.

        Args:
            images: how many it had.
            longest: seconds of its longest step; results can go to disk only between steps.
        """
        if self._headroom is None:
            return
        if longest > _LONG and images > self.least:
            self.images = max(self.least, min(self.images, images // 2))
        elif longest < _SHORT and images == self.images:
            self.images = min(self.most, images * (8 if longest < _SHORT / 8 else 2))

    def shrink(self, images: int) -> None:
        """Halve the size from now on: this many images did not fit into memory."""
        self.most = max(1, images // 2)
        self.least = min(self.least, self.most)
        self.images = min(self.images, self.most)

    def _fitting(self, images: int, taken: int) -> int:
        """Images that fit, in proportion to a measurement; a fixed part of it makes the answer too small, never too large."""
        free = 0 if self._headroom is None else self._headroom.free
        return min(_GROWTH * images, images * free // max(1, taken))


def _key(tasks: Sequence[Task]) -> frozenset[tuple[NoiseLevel, str]]:
    return frozenset((task.at, task.chosen.label) for task in tasks)


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
        dataset: what the noisy copies are of.

    Raises:
        DataError: a noise knows other labels.
        SpecError: an option of a noise does not fit.
    """
    for noise in noises:
        try:
            noise.check(shape_of(image), _labels_of(dataset))
        except SpecError as error:
            raise SpecError(f"noise {noise.label}: {error.where}", error.what, error.remedy) from error


def _labels_of(dataset: Dataset) -> Iterator[tuple[str, int]]:
    """Ids and labels (-1: none), where they are known without reading pixels; nothing is looked up before the first is taken."""
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
    limit: Limit,
    *,
    gradients: bool,
) -> Engine:
    """The engine of the spec's run, with as many rows in a pass as the rule says or as fit into memory.

    Args:
        spec: seed, batch size and determinism.
        noises: of the run.
        model: for clean passes and gradients.
        noisy: for noisy passes without gradients.
        classes: number of logits.
        image: one image, for its shape.
        limit: of the process's memory.
        gradients: whether an estimator needs them.
    """
    sources = sources_of(noises, spec.run.seed, model)
    if spec.run.batch_size != "auto":
        return Engine(model, sources, classes, spec.run.batch_size, noisy=noisy)
    if model.device.type == "cuda":  # the free memory differs from run to run
        fits = None if spec.run.deterministic else fitting_passes(noisy, None, image, free_bytes(model.device))
        return Engine(model, sources, classes, noisy=noisy, fitting=fits)
    free = limit.left
    fits = fitting_passes(noisy, model if gradients else None, image, free)
    return Engine(model, sources, classes, noisy=noisy, fitting=fits._replace(tight=free < _TIGHT))


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


def sources_of(noises: Sequence[Noise], seed: int, model: LogitModel, stream: str = "") -> dict[str, NoiseSource]:
    """The noises by label, and under the label for none the random numbers of estimators that no noise has to do with."""
    found = {noise.label: noise.source(seed, model.device, model.dtype, stream=stream) for noise in noises}
    return {**found, NO_NOISE.noise: NoiseSource(Gaussian(), NormalDraws(NO_NOISE.noise, seed, model.device, model.dtype, stream=stream))}


def make_pace(spec: AuditSpec, engine: Engine, tasks: Sequence[Task], image: torch.Tensor, limit: Limit, *, mixed: bool) -> Pace:
    """The chunk sizes of the spec's run.

    They follow a fixed rule where rows depend on the rest of their chunk: where the model mixes the images of a batch, and on CUDA (in
    the last digits) if the run is deterministic.
    """
    device = engine.model.device
    steady = (spec.run.deterministic and device.type == "cuda") or mixed
    rows = engine.gradient_rows(shape_of(image), 1)
    least = max((-(-rows // each) for task in tasks if (each := task.chosen.estimator.rows_at_once)), default=1)
    return Pace(tasks, engine.classes, image.numel(), None if steady else Headroom(device, limit), least)
