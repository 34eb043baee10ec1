"""Model, engine and chunk sizes as the sections of a spec ask for."""

from __future__ import annotations

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
from robaudit.pace import Pace
from robaudit.spec.model import AuditSpec

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
