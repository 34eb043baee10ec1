"""Objectives: options as fields, and one method, the loss of a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field, PrivateAttr, ValidationInfo, model_validator
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from robaudit.errors import SpecError
from robaudit.levels import FILE
from robaudit.noise.installed import build
from robaudit.noise.noise import BASE_DIR, Noise, shape_of
from robaudit.numerics.log_losses import log_cross_entropy
from robaudit.spec.fields import SpecSection
from robaudit.spec.model import NoiseSpec


class _LogCrossEntropy(torch.autograd.Function):
    """log CE with a gradient that exists even where float32 CE is 0.

    :func:`robaudit.numerics.log_losses.log_cross_entropy` gives both; autograd would differentiate
    through intermediate values that underflow.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        value, rate = log_cross_entropy(logits, labels)
        ctx.save_for_backward(rate.to(logits.dtype))
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (rate,) = ctx.saved_tensors
        return rate * gradient[:, None].to(rate.dtype), None


@dataclass(frozen=True, slots=True)
class Batch:
    """The network, images and labels of a training step.

    Random numbers come from torch's global generator, which the loop seeds for each step.

    Attributes:
        network: pixels in [0, 1] (n, channels, height, width) -> logits (n, classes), in training
            mode.
        images: (n, channels, height, width).
        labels: class indices (n,).
    """

    network: nn.Module
    images: Tensor
    labels: Tensor

    def logits(self, pixels: Tensor | None = None) -> Tensor:
        """The logits of these pixels (rows, channels, height, width); default: of the images."""
        logits: Tensor = self.network(self.images if pixels is None else pixels)
        return logits

    def cross_entropy(self, pixels: Tensor | None = None) -> Tensor:
        """The mean cross-entropy of these pixels, one row for each image; default: of the
        images."""
        return F.cross_entropy(self.logits(pixels), self.labels)

    def rows(self, copies: int) -> Tensor:
        """The image index of each row, with ``copies`` consecutive rows per image (n copies,)."""
        return torch.arange(len(self.images), device=self.images.device).repeat_interleave(copies)

    def log_loss(self, pixels: Tensor, image: Tensor) -> Tensor:
        """log CE of each row, with a gradient that does not underflow.

        Args:
            pixels: (rows, channels, height, width).
            image: the image index of each row (rows,).

        Returns:
            (rows,), float64.
        """
        log_loss: Tensor = _LogCrossEntropy.apply(self.logits(pixels), self.labels[image])
        return log_loss

    @contextmanager
    def searching(self) -> Iterator[None]:
        """Put the network in evaluation mode within the block: no dropout, and batch norms keep
        their statistics."""
        # An attack or a chain must follow one fixed function.
        training = self.network.training
        self.network.eval()
        try:
            yield
        finally:
            self.network.train(training)


class Objective(SpecSection, ABC):
    """A training objective. Options are fields (frozen; unknown ones are errors).

    Register a subclass under the entry-point group ``robaudit.objectives``; the built-in ones are
    registered the same way.

    Class attributes:
        summary: one line: what is minimised.
        source: paper and equation.
    """

    summary: ClassVar[str]
    source: ClassVar[str]

    def check(self, batch: Batch) -> None:
        """Refuse a network or images that the objective cannot handle; by default none.

        Args:
            batch: the first two images.

        Raises:
            RobauditError: the objective cannot handle them.
        """

    @abstractmethod
    def loss(self, batch: Batch) -> Tensor:
        """The number to minimise (), differentiable with respect to the network's weights."""


class NoisyObjective(Objective):
    """An objective under random noise of any kind, at a single level."""

    noise: NoiseSpec = Field(
        description="kind, level and options, as in an audit: {kind: uniform, eps: 0.3, clip: true}"
    )

    _form: Noise = PrivateAttr()

    @model_validator(mode="after")
    def _build(self, info: ValidationInfo) -> NoisyObjective:
        if len(self.noise.levels) != 1:
            raise ValueError(f"noise has {len(self.noise.levels)} levels; give one")
        if self.noise.at == FILE:
            raise ValueError("noise at: file is for audits; training has no image files")
        context = info.context or {}
        try:
            (noise,) = build([self.noise], context.get(BASE_DIR, Path()))
        except SpecError as error:
            # pydantic reports ValueErrors with their place in the spec
            raise ValueError(f"{error.where}: {error.what}; {error.remedy}") from error
        self._form = noise.noise
        # Copies that are all the same make a norm over copies meaningless.
        if not noise.noise.random:
            raise ValueError(
                f"noise: {self.noise.kind} does the same to an image every time; choose a kind "
                "that draws at random"
            )
        return self

    def check(self, batch: Batch) -> None:
        """Refuse images that the noise cannot handle."""
        self._form.check(shape_of(batch.images), self.noise.levels)

    def normals(self, images: Tensor) -> Tensor:
        """Standard normal variables for noisy copies of these images (rows, *latent shape)."""
        shape = self._form.latent_shape(shape_of(images))
        return torch.randn((len(images), *shape), dtype=images.dtype, device=images.device)

    def noisy(self, images: Tensor, z: Tensor) -> Tensor:
        """A noisy copy of each image, from its normal variables."""
        (level,) = self.noise.levels
        # Random kinds do not use the ids of samples.
        pixels = self._form.noisy(images, z, level, ids=[""] * len(images))
        return pixels.clamp(0.0, 1.0) if self.noise.clip else pixels
