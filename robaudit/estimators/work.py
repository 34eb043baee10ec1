"""What an estimator gets to see: a chunk of images at one noise level, with the passes that are shared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from robaudit.estimators.engine import Engine, padded
from robaudit.estimators.selection import ALL, SELECTING_FORWARDS, Kept, keep_margins
from robaudit.numerics.margins import halves, margin_gradients, margins, other_classes
from robaudit.numerics.rowwise import mean_over, variance_over

_STEP = 1 / 64
_ALIKE_ROWS = 8  # on the CPU as fast as more (measured), and fewer images wait for the one that keeps most


@dataclass(frozen=True, slots=True)
class Linear:
    """Linear fits g_i ~ c_i + u_i . eps of the margins, one for each image and group of draws.

    A margin that is not kept (class -1) has c = 1 and u = 0: it never fails.

    Attributes:
        mean: margins c (images, groups, margins), float64.
        gradients: u (images, groups, margins, pixels).
        counts: draws in each group (groups,).
        others: class behind each margin (images, margins).
        kept: what was selected, or None when all margins are there.
    """

    mean: Tensor
    gradients: Tensor
    counts: Tensor
    others: Tensor
    kept: Kept | None


@dataclass(frozen=True, slots=True)
class Tangent:
    """Tangents of the margins at the clean images, with the conventions of :class:`Linear`.

    Attributes:
        mean: margins c (images, margins), float64.
        gram: covariance of u_i . z under the standard noise (images, margins, margins), float64.
        others, kept: as in :class:`Linear`.
    """

    mean: Tensor
    gram: Tensor
    others: Tensor
    kept: Kept | None


@dataclass(frozen=True, slots=True)
class CleanPass:
    """The clean images: logits (n, classes) float64, predicted class (n,), margins and, if recorded, gradient covariance (n, k, k)."""

    logits: Tensor
    predicted: Tensor
    margins: Tensor
    gram: Tensor | None

    @classmethod
    def of(cls, engine: Engine, x: Tensor, *, gradients: bool) -> CleanPass:
        """Pass the clean images through the network once; with ``gradients`` one Jacobian serves all who linearise there.

        The Jacobian has a pass of its own: a network may round otherwise where gradients are recorded, and no row is to depend on
        which estimators stand beside. With more than 33 classes none is taken: :meth:`Work.tangent` does, where it matters at its sigma.
        """
        # What stays is allocated before what goes: with results between them, the C library (glibc below 2.38) would use none of the
        # freed blocks again, and hold as much as all passes together.
        k = engine.classes - 1
        gram = torch.empty((len(x), k, k), dtype=torch.float64, device=x.device) if gradients and k <= ALL else None
        logits = engine.logits(x)
        predicted = logits.argmax(1)
        if gram is not None:
            rows = engine.gradient_rows(x.shape[1:], k)
            for part, target, out in zip(x.split(rows), predicted.split(rows), gram.split(rows), strict=True):
                _, _, u = margin_gradients(engine.model, padded(part, rows), padded(target, rows))
                out.copy_(engine.noise.gram(u[: len(part)]))
        return cls(logits, predicted, margins(logits, predicted), gram)

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
    _fits: dict[tuple[object, ...], Linear] = field(default_factory=dict, repr=False)
    _tangents: dict[int | None, Tangent] = field(default_factory=dict, repr=False)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.engine.classes

    @cached_property
    def others(self) -> Tensor:
        """Class index behind each margin (n, classes - 1)."""
        return other_classes(self.clean.predicted, self.classes)

    def nearest(self, z: Tensor, others: Tensor | None = None) -> list[int]:
        """The class of the smallest z (n, k): the likeliest flip; ``others`` names the classes when they are not all."""
        classes = self.others if others is None else torch.where(others < 0, others[:, :1], others)
        return [int(c) for c in classes.gather(1, z.argmin(1, keepdim=True))[:, 0]]

    def tangent(self, most: int | None = None) -> Tangent:
        """Margins and gradients at the clean images, of all classes or of those that matter at this sigma, ``most`` at most.

        Raises:
            ValueError: if the clean pass should have recorded gradients and has not.
        """
        if self.classes - 1 <= ALL:
            if self.clean.gram is None:
                raise ValueError("the clean pass has recorded no gradients; declare linearises_clean")
            return Tangent(self.clean.margins, self.clean.gram, self.others, None)
        if most not in self._tangents:
            self._tangents[most] = self._tangent(most)
        return self._tangents[most]

    def noisy_linear(self, draws: int, *, pairs: bool, groups: int, most: int | None = None) -> Linear:
        """Mean margins and gradients over noisy copies, in groups of draws; computed once for all estimators that ask alike.

        Memory is images x groups x margins x pixels, whatever the number of draws; with ``most`` only so many margins are kept.
        """
        key = (draws, pairs, groups, most)
        if key not in self._fits:
            self._fits[key] = self._noisy_linear(draws, pairs, groups, most)
        return self._fits[key]

    def _tangent(self, most: int | None) -> Tangent:
        kept = None if most is None else keep_margins(self.clean.margins, self._slopes(), self.others, most)
        others = self.others if kept is None else kept.others
        k = others.shape[1]
        rows = self.engine.gradient_rows(self.x.shape[1:], k)
        if kept and self.x.device.type == "cpu":
            rows = min(rows, _ALIKE_ROWS)
        mean = torch.empty((len(self.x), k), dtype=torch.float64, device=self.x.device)
        gram = torch.empty((len(self.x), k, k), dtype=torch.float64, device=self.x.device)
        for part in _alike(kept, len(self.x), self.x.device).split(rows):
            full = padded(part, rows)
            found = margin_gradients(self.engine.model, self.x[full], self.clean.predicted[full], others[full] if kept else None)
            g, u = (out[: len(part)] for out in found[1:])
            mean[part], gram[part] = g.double(), self.engine.noise.gram(u)
        return Tangent(mean, gram, others, kept)

    def _slopes(self) -> Tensor:
        """Estimated variance of each margin's tangent, (n, classes - 1): differences over a short step along each of 8 draws."""
        g = self._few_margins(_STEP * self.sigma, pairs=False) - self.clean.margins[:, None]
        return mean_over(g.square(), 1) / _STEP**2

    def _few_margins(self, sigma: float, *, pairs: bool) -> Tensor:
        """Margins of the first 8 noisy copies (n, 8, classes - 1), float64."""
        n, draws = len(self.x), SELECTING_FORWARDS
        logits = torch.empty((n * draws, self.classes), dtype=torch.float64, device=self.x.device)
        for batch, part in self.engine.noisy_logits(self.x, self.ids, sigma, draws, pairs=pairs):
            logits[batch.image * draws + batch.draw] = part.double()
        return margins(logits, self.clean.predicted.repeat_interleave(draws)).view(n, draws, -1)

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        """Estimated mean and variance of each margin under the noise (n, classes - 1), from 4 antithetic pairs."""
        even, odd = halves(self._few_margins(self.sigma, pairs=True))
        return mean_over(even, 1), variance_over(even, 1) + mean_over(odd.square(), 1)

    def _noisy_linear(self, draws: int, pairs: bool, groups: int, most: int | None) -> Linear:
        kept = None if most is None else keep_margins(*self._moments, self.others, most)
        others = self.others if kept is None else kept.others
        n, k = others.shape
        per_unit = 2 if pairs else 1
        units = draws // per_unit
        mean = torch.zeros((n * groups, k), dtype=torch.float64, device=self.x.device)
        gradients = torch.zeros((n * groups, k, self.x[0].numel()), dtype=self.x.dtype, device=self.x.device)
        rows = self.engine.gradient_rows(self.x.shape[1:], k)
        order = _alike(kept, n, self.x.device)
        x, ids = self.x[order], [self.ids[b] for b in order.tolist()]
        for batch in self.engine.noisy_batches(x, ids, self.sigma, draws, rows, pairs=pairs):
            image, full = order[batch.image], order[padded(batch.image, rows)]
            found = margin_gradients(self.engine.model, batch.padded, self.clean.predicted[full], others[full] if kept else None)
            g, u = (out[: len(image)] for out in found[1:])
            slot = image * groups + (batch.draw // per_unit) * groups // units
            mean.index_add_(0, slot, g.double())
            gradients.index_add_(0, slot, u)
        counts = torch.bincount(torch.arange(units, device=self.x.device) * groups // units, minlength=groups) * per_unit
        mean = mean.view(n, groups, k) / counts[:, None]
        gradients = gradients.view(n, groups, k, -1).div_(counts.to(gradients.dtype)[:, None, None])
        return Linear(mean, gradients, counts, others, kept)


def _alike(kept: Kept | None, images: int, device: torch.device) -> Tensor:
    """An order of the images in which those that keep alike many margins share their passes."""
    return torch.arange(images, device=device) if kept is None else kept.counts.argsort(stable=True)
