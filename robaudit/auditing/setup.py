"""The model, the engine and the size of the chunks that a spec asks for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy

import torch
from torch import nn

from robaudit.estimators import registry
from robaudit.estimators.engine import Engine, fitting_passes
from robaudit.estimators.registry import Task
from robaudit.files import expanded
from robaudit.memory import Room, free_bytes, memory_limit
from robaudit.models.load import from_module, load_model
from robaudit.models.logits import PIXELS, LogitModel
from robaudit.noise.gaussian import GaussianNoise
from robaudit.spec.model import AuditSpec

MOST_IMAGES = 1024
_FIRST_VALUES = 2**22  # through the network in the first chunk: 1,365 passes at 3 x 32 x 32
_STEADY_VALUES = 2**25  # where the size must be a fixed rule: 10,000 passes at 3 x 32 x 32
_STEADY_IMAGES = 64
_MOST_ROWS = 4096  # in a part, about
_DUE, _SHORT, _LONG = 1.0, 0.6, 2.0  # seconds
_GROWTH = 8  # at most so many times the images that were measured before


class Pace:
    """The size of the chunks: as many images as take about a second, and as memory holds by what earlier chunks were measured to take.

    The first chunk of each set of tasks is a single image; the next ones grow as far as the measured bytes allow. Without a room the
    size is a rule of the arguments alone, for models and devices whose rows depend on the rest of the chunk: whatever an image holds
    was computed from its passes, so a bound on the values in them bounds its memory.

    Attributes:
        images: how many the next chunk may have by the clock.
        most: how many at most, after failed allocations.

    Args:
        tasks: every estimator at every noise level.
        classes: number of logits.
        values: of one image: channels * height * width.
        room: the free memory; None where the size must be a fixed rule.
    """

    def __init__(self, tasks: Sequence[Task], classes: int, values: int, room: Room | None = None) -> None:
        passes = max((task.cost(classes) for task in tasks), default=1)
        wanted = (_STEADY_VALUES if room is None else _FIRST_VALUES) // (max(1, passes) * max(1, values))
        self.most = max(1, min(MOST_IMAGES, _MOST_ROWS // max(1, len(tasks))))
        self.images: int = max(1, min(self.most, _STEADY_IMAGES, 2 ** math.floor(math.log2(max(1, wanted)))))
        self._room = room
        self._measured: dict[frozenset[tuple[float, str]], tuple[int, int]] = {}

    def due(self, seconds: float, rows: int) -> bool:
        """Whether the rows that were computed in so many seconds should go to disk now."""
        return seconds >= _DUE or rows >= _MOST_ROWS

    def allowed(self, tasks: Sequence[Task]) -> int:
        """How many images memory holds with these tasks."""
        if self._room is None:
            return self.most
        asked = _key(tasks)
        fitting = [self._fitting(images, taken) for key, (images, taken) in self._measured.items() if asked <= key]
        return max(1, min(self.most, max(fitting, default=1)))

    def next_images(self, tasks: Sequence[Task]) -> int:
        """How many images the next chunk should have."""
        return min(self.images, self.allowed(tasks))

    def begin(self) -> None:
        """A chunk begins: its peak counts from now on."""
        if self._room is not None:
            self._room.watch()

    def fitted(self, tasks: Sequence[Task], images: int) -> None:
        """A chunk of so many images has done these tasks within the memory there is."""
        if self._room is not None:
            before = self._measured.get(_key(tasks), (0, 0))
            self._measured[_key(tasks)] = (max(before[0], images), max(before[1], self._room.taken()))

    def took(self, images: int, longest: float) -> None:
        """Learn from the time of a chunk.

        Args:
            images: how many it had.
            longest: how long the longest of its steps took, between two of which results can go to disk.
        """
        if self._room is None:
            return
        if longest > _LONG and images > 1:
            self.images = max(1, min(self.images, images // 2))
        elif longest < _SHORT and images == self.images:
            self.images = min(self.most, images * (8 if longest < _SHORT / 8 else 2))

    def shrink(self, images: int) -> None:
        """So many images were too much for the memory: half as many from now on."""
        self.most = max(1, images // 2)
        self.images = min(self.images, self.most)

    def _fitting(self, images: int, taken: int) -> int:
        """Images that fit if so many took so many bytes: in proportion, so a fixed part makes the answer too small, never too large."""
        free = 0 if self._room is None else self._room.free
        return min(_GROWTH * images, images * free // max(1, taken))


def _key(tasks: Sequence[Task]) -> frozenset[tuple[float, str]]:
    return frozenset((task.sigma, task.chosen.label) for task in tasks)


_TIGHT = 2**31  # with less room freed memory is given back while the run goes on, at a cost of some percent of its time


def make_model(spec: AuditSpec, given: nn.Module | None, device: torch.device, *, trust: bool) -> LogitModel:
    """The spec's model, or the one given, as a function from pixels to logits.

    Raises:
        ModelError: it cannot be made.
        RobauditError: with it, the process holds as much memory as it may.
    """
    dtype = PIXELS[spec.run.precision]
    options = spec.model
    if given is not None:
        network = from_module(
            given, mean=options.mean, std=options.std, output=options.output, dtype=dtype, device=device, clip=spec.noise.clip, name="model"
        )
    else:
        path = None if options.path is None else spec.base_dir / expanded(options.path)
        network = load_model(options, path, base_dir=spec.base_dir, device=device, dtype=dtype, trust=trust, clip=spec.noise.clip)
    memory_limit(spec.run.memory)  # say at once if there is none left
    return network


def make_engine(spec: AuditSpec, model: LogitModel, noisy: LogitModel, classes: int, image: torch.Tensor) -> Engine:
    """Where the passes of the spec's run go: as many rows at once as the rule says, or as fit into memory.

    Args:
        spec: seed, precision, batch size, memory and estimators.
        model: for clean passes and gradients.
        noisy: for noisy passes without gradients.
        classes: number of logits.
        image: one image, for its shape.
    """
    noise = GaussianNoise(spec.run.seed, model.device, model.dtype)
    if spec.run.batch_size != "auto":
        return Engine(model, noise, classes, spec.run.batch_size, noisy=noisy)
    if model.device.type == "cuda":  # what is free differs from run to run
        fits = None if spec.run.deterministic else fitting_passes(noisy, None, image, free_bytes(model.device))
        return Engine(model, noise, classes, noisy=noisy, fitting=fits)
    gradients = any("gradients" in chosen.estimator.needs for chosen in registry.build(spec.estimators))
    free = memory_limit(spec.run.memory).left
    fits = fitting_passes(noisy, model if gradients else None, image, free)
    return Engine(model, noise, classes, noisy=noisy, fitting=fits._replace(tight=free < _TIGHT))


def on_stream(engine: Engine, seed: int, stream: str) -> Engine:
    """The same engine with noise of its own: independent of that of the run, and of other streams.

    Args:
        engine: model, noise and sizes of the run.
        seed: the run's seed.
        stream: the name of the stream.
    """
    other = copy(engine)
    other.noise = GaussianNoise(seed, engine.model.device, engine.model.dtype, stream=stream)
    return other


def make_pace(spec: AuditSpec, engine: Engine, tasks: Sequence[Task], image: torch.Tensor, batch_dependent: bool) -> Pace:
    """How many images the spec's run computes at once.

    As many as take about a second, and as fit into memory by what chunks are measured to take. The number is a fixed rule where rows
    depend on the rest of their chunk: where the model looks at the whole batch, and on CUDA (in the last digits) if the run is
    deterministic.
    """
    device = engine.model.device
    steady = (spec.run.deterministic and device.type == "cuda") or batch_dependent
    return Pace(tasks, engine.classes, image.numel(), None if steady else Room(device, memory_limit(spec.run.memory)))
