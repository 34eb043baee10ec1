"""How do the sections of a spec become a model and an engine?"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import torch
from torch import nn

from robaudit import registry
from robaudit.budget import chunk_images, memory_limit, needs, room
from robaudit.estimators.engine import Engine, Fitting
from robaudit.estimators.memory import free_bytes, measured_rows
from robaudit.estimators.pilot import fitting_passes
from robaudit.files import expanded
from robaudit.models import LogitModel, from_module, load_model
from robaudit.models.precision import PIXELS
from robaudit.noise import GaussianNoise
from robaudit.pace import Pace
from robaudit.plan import Task, tasks_of
from robaudit.spec import AuditSpec

_TIGHT = 2**31  # with less room freed memory is given back while the run goes on, at a cost of some percent of its time
_STEADY_BYTES = 2**29  # for a chunk whose size is not to depend on what is free, unless that is less


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
        fits = None if spec.run.deterministic else Fitting(measured_rows(noisy, image))
        return Engine(model, noise, classes, noisy=noisy, fitting=fits)
    estimators = registry.build(spec.estimators)
    gradients = any("gradients" in chosen.estimator.needs for chosen in estimators)
    free = room(memory_limit(spec.run.memory))
    one_image = sum(needs(tasks_of(spec.noise.sigma, estimators), classes, _values(image, model)))
    fit = fitting_passes(noisy, model if gradients else None, image, classes, max(free - one_image, free // 4))
    return Engine(model, noise, classes, noisy=noisy, fitting=fit._replace(tight=free < _TIGHT))


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

    As many as fit into memory beside the passes and take about a second. The number may follow the time that chunks take, unless rows
    depend on the rest of their chunk: where the model looks at the whole batch, and on CUDA (in the last digits) if it shall be
    deterministic.
    """
    device = engine.model.device
    timed = not (spec.run.deterministic and device.type == "cuda") and not batch_dependent
    free = room(memory_limit(spec.run.memory)) - engine.pass_bytes if device.type == "cpu" else free_bytes(device)
    most = chunk_images(free if timed else min(free, _STEADY_BYTES), tasks, engine.classes, _values(image, engine.model))
    return Pace(tasks, engine.classes, image.numel(), most=most, timed=timed)


def _values(image: torch.Tensor, model: LogitModel) -> int:
    """Values of an image, counted as float32."""
    return image.numel() * model.dtype.itemsize // 4
