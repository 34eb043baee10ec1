"""How do the sections of a spec become a model and an engine?"""

from __future__ import annotations

import torch
from torch import nn

from robaudit.estimators.engine import Engine
from robaudit.estimators.memory import measured_rows
from robaudit.files import expanded
from robaudit.models import LogitModel, from_module, load_model
from robaudit.models.precision import PIXELS
from robaudit.noise import GaussianNoise
from robaudit.spec import AuditSpec


def make_model(spec: AuditSpec, given: nn.Module | None, device: torch.device, *, trust: bool) -> LogitModel:
    """The spec's model, or the one given, as a function from pixels to logits.

    Raises:
        ModelError: it cannot be made.
    """
    dtype = PIXELS[spec.run.precision]
    options = spec.model
    if given is not None:
        return from_module(
            given, mean=options.mean, std=options.std, output=options.output, dtype=dtype, device=device, clip=spec.noise.clip, name="model"
        )
    path = None if options.path is None else spec.base_dir / expanded(options.path)
    return load_model(options, path, base_dir=spec.base_dir, device=device, dtype=dtype, trust=trust, clip=spec.noise.clip)


def make_engine(spec: AuditSpec, model: LogitModel, noisy: LogitModel, classes: int, image: torch.Tensor) -> Engine:
    """Where the passes of the spec's run go.

    Args:
        spec: seed, precision and batch size.
        model: for clean passes and gradients.
        noisy: for noisy passes without gradients.
        classes: number of logits.
        image: one image, for its shape.
    """
    noise = GaussianNoise(spec.run.seed, model.device, model.dtype)
    batch_size = None if spec.run.batch_size == "auto" else spec.run.batch_size
    most_rows = measured_rows(noisy, image) if batch_size is None else None
    return Engine(model, noise, classes, batch_size, noisy=noisy, most_rows=most_rows)
