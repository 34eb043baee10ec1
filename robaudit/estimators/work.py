"""What an estimator gets to see: a chunk of images at one noise level, with the passes that are shared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from robaudit.estimators.engine import Engine
from robaudit.numerics.jacobian import margin_gradients, margins, other_classes


@dataclass(frozen=True, slots=True)
class Linear:
    """Linear fits g_i ~ c_i + u_i . eps of the margins, one for each image and group of draws.

    Attributes:
        mean: margins c (images, groups, margins), float64.
        gradients: u (images, groups, margins, pixels).
        counts: draws in each group (groups,).
    """

    mean: Tensor
    gradients: Tensor
    counts: Tensor


@dataclass(frozen=True, slots=True)
class CleanPass:
    """The clean images: logits (n, classes) float64, predicted class (n,), margins and, if recorded, gradient covariance (n, k, k)."""

    logits: Tensor
    predicted: Tensor
    margins: Tensor
    gram: Tensor | None

    @classmethod
    def of(cls, engine: Engine, x: Tensor, *, gradients: bool) -> CleanPass:
        """Pass the clean images through the network once; with ``gradients`` one Jacobian serves all who linearise there."""
        if not gradients:
            logits = engine.logits(x)
            predicted = logits.argmax(1)
            return cls(logits, predicted, margins(logits, predicted), None)
        parts = []
        for part in x.split(engine.gradient_rows(x.shape[1:])):
            logits, g, u = margin_gradients(engine.model, part)
            parts.append((logits.double(), g.double(), engine.noise.gram(u)))
        logits, g, gram = (torch.cat(pieces) for pieces in zip(*parts, strict=True))
        return cls(logits, logits.argmax(1), g, gram)

    def select(self, keep: Tensor) -> CleanPass:
        """The clean pass of some of the images."""
        return CleanPass(self.logits[keep], self.predicted[keep], self.margins[keep], None if self.gram is None else self.gram[keep])


@dataclass(frozen=True)
class Work:
    """A chunk of images at one noise level.

    Attributes:
        ids: sample ids, which seed the noise.
        x: pixels (n, channels, height, width) on the engine's device.
        labels: class indices (n,), -1 where unknown.
        sigma: noise level in pixel units.
        clean: the clean pass.
        engine: where noisy passes go.
    """

    ids: Sequence[str]
    x: Tensor
    labels: Tensor
    sigma: float
    clean: CleanPass
    engine: Engine
    _shared: dict[tuple[object, ...], Linear] = field(default_factory=dict, repr=False)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.engine.classes

    @cached_property
    def others(self) -> Tensor:
        """Class index behind each margin (n, classes - 1)."""
        return other_classes(self.clean.predicted, self.classes)

    def nearest(self, z: Tensor) -> list[int]:
        """The class of the smallest z (n, classes - 1): the likeliest flip."""
        return [int(c) for c in self.others.gather(1, z.argmin(1, keepdim=True))[:, 0]]

    def noisy_linear(self, draws: int, *, pairs: bool, groups: int) -> Linear:
        """Mean margins and gradients over noisy copies, in groups of draws; computed once for all estimators that ask alike.

        Memory is images x groups x margins x pixels, whatever the number of draws.
        """
        key = (draws, pairs, groups)
        if key not in self._shared:
            self._shared[key] = self._noisy_linear(draws, pairs, groups)
        return self._shared[key]

    def _noisy_linear(self, draws: int, pairs: bool, groups: int) -> Linear:
        n, k = len(self.x), self.classes - 1
        per_unit = 2 if pairs else 1
        units = draws // per_unit
        mean = torch.zeros((n * groups, k), dtype=torch.float64, device=self.x.device)
        gradients = torch.zeros((n * groups, k, self.x[0].numel()), dtype=self.x.dtype, device=self.x.device)
        rows = self.engine.gradient_rows(self.x.shape[1:])
        for batch in self.engine.noisy_batches(self.x, self.ids, self.sigma, draws, rows, pairs=pairs):
            _, g, u = margin_gradients(self.engine.model, batch.x, self.clean.predicted[batch.image])
            slot = batch.image * groups + (batch.draw // per_unit) * groups // units
            mean.index_add_(0, slot, g.double())
            gradients.index_add_(0, slot, u)
        counts = torch.bincount(torch.arange(units, device=self.x.device) * groups // units, minlength=groups) * per_unit
        mean = mean.view(n, groups, k) / counts[:, None]
        gradients = gradients.view(n, groups, k, -1).div_(counts.to(gradients.dtype)[:, None, None])
        return Linear(mean, gradients, counts)
