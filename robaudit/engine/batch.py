"""The chunk of images that an estimator sees at one noise level, and the passes that estimators
share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress

import torch
from torch import Tensor

from robaudit.engine.passes import Engine, NoisyBatch, padded
from robaudit.engine.selection import SELECTING_FORWARDS, Selection, keep_margins
from robaudit.levels import NoiseLevel
from robaudit.models.logits import LogitModel
from robaudit.noise.noise import Noise, shape_of
from robaudit.noise.process import NoiseProcess
from robaudit.numerics.margins import NEVER, halves, margin_gradients, margins, other_classes
from robaudit.numerics.rowwise import mean_over, variance_over

HELD_BYTES = 2**25
"""Bytes of points that a search holds at once, unless a single image takes more; gradients, steps
and draws each take as much again."""

_STEP = 1 / 64
_BARE = NoiseLevel()
# on the CPU as fast as more rows (measured), and fewer images are padded to the most margins of any
_ALIKE_ROWS = 8


@dataclass(frozen=True, slots=True)
class LinearFit:
    """Linear fits g_i ~ c_i + u_i . eps of the margins, for each image and group of draws.

    A padding margin (class -1) has c = 1 and u = 0: it never fails.

    Attributes:
        mean: margins c (images, groups, margins), float64.
        gradients: u (images, groups, margins, pixels).
        counts: draws in each group (groups,).
        selection: the margins.
    """

    mean: Tensor
    gradients: Tensor
    counts: Tensor
    selection: Selection


@dataclass(frozen=True, slots=True)
class Tangent:
    """Tangents of the margins at the clean images; conventions as in :class:`LinearFit`.

    Attributes:
        mean: margins c (images, margins), float64.
        gram: u_i^T S u_j, the covariance under unit noise (images, margins, margins), float64.
        selection: the margins.
    """

    mean: Tensor
    gram: Tensor
    selection: Selection


@dataclass(frozen=True)
class ImageBatch:
    """A chunk of images at a noise level, after the clean pass.

    Attributes:
        ids: sample ids, which seed the noise.
        x: pixels (n, channels, height, width) on the engine's device.
        labels: class indices (n,), -1 where unknown.
        at: the noise and its level.
        engine: computes further passes.
        logits: of the clean images (n, classes), float64.
        predicted: class of each clean image (n,).
        margins: logit of the predicted class minus each other logit (n, classes - 1).
        lost: number of noisy copies with non-finite logits by image, as counted by :meth:`noisy`.
    """

    ids: Sequence[str]
    x: Tensor
    labels: Tensor
    at: NoiseLevel
    engine: Engine
    logits: Tensor
    predicted: Tensor
    margins: Tensor
    lost: Counter[int] = field(default_factory=Counter, repr=False)
    _fits: dict[tuple[object, ...], LinearFit] = field(default_factory=dict, repr=False)
    # shared by all levels
    _tangents: dict[object, Tangent] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        engine: Engine,
        x: Tensor,
        at: NoiseLevel = _BARE,
        *,
        ids: Sequence[str] | None = None,
        labels: Tensor | None = None,
    ) -> ImageBatch:
        """Pass the clean images through the network.

        Args:
            engine: model and noises.
            x: pixels in [0, 1] (n, channels, height, width).
            at: the noise and its level.
            ids: sample ids; default: "0", "1", ...
            labels: class indices (n,); default: unknown.
        """
        logits = engine.logits(x)
        predicted = logits.argmax(1)
        names = [str(i) for i in range(len(x))] if ids is None else ids
        known = torch.full((len(x),), -1, device=x.device) if labels is None else labels
        return cls(names, x, known, at, engine, logits, predicted, margins(logits, predicted))

    def under(self, at: NoiseLevel) -> ImageBatch:
        """The same images at another noise level."""
        return replace(self, at=at, lost=Counter(), _fits={})

    def select(self, keep: Tensor) -> ImageBatch:
        """The images where ``keep`` (n,), bool, is true."""
        ids = list(compress(self.ids, keep.tolist()))
        parts = (self.logits[keep], self.predicted[keep], self.margins[keep])
        return ImageBatch(ids, self.x[keep], self.labels[keep], self.at, self.engine, *parts)

    def groups(self, values: int) -> tuple[Tensor, ...]:
        """Indices of the images, in groups for a search that holds so many values of each image at
        once."""
        few = max(1, HELD_BYTES // (values * self.x.element_size()))
        groups: tuple[Tensor, ...] = torch.arange(len(self.x), device=self.x.device).split(few)
        return groups

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.engine.classes

    @property
    def level(self) -> float:
        """The noise level in its own unit; 0 without a level."""
        return self.at.number

    @property
    def noise(self) -> Noise:
        """The noise: its options, and its map from normal variables to pixels."""
        return self._process.noise

    @property
    def amplitude(self) -> float:
        """The scale of additive noise at this level: its covariance is amplitude^2 times the
        covariance of unit noise."""
        return self._process.amplitude(self.level, shape_of(self.x))

    @property
    def model(self) -> LogitModel:
        """The model for passes in full precision; it clips pixels if the noise requires it."""
        return (
            self.engine.model_under(self.at.noise)
            if self.at.noise in self.engine.noises
            else self.engine.model
        )

    @property
    def latent_shape(self) -> tuple[int, ...]:
        """The shape of the normal variables behind a noisy copy."""
        return self.noise.latent_shape(shape_of(self.x))

    def normals(self, purpose: str, image: int, draws: int, start: int = 0) -> Iterator[Tensor]:
        """Standard normal variables of an image, reserved for a purpose, in blocks (n,
        *latent_shape)."""
        return self._process.blocks(
            f"{purpose}\x1f{self.ids[image]}", draws, shape_of(self.x), start
        )

    def scalars(self, purpose: str, image: int, draws: int) -> Iterator[Tensor]:
        """Standard normal numbers of an image, reserved for a purpose, in blocks (n,)."""
        return self._process.scalars(f"{purpose}\x1f{self.ids[image]}", draws)

    def noisy_pixels(self, x: Tensor, ids: Sequence[str], z: Tensor) -> Tensor:
        """Noisy pixels (rows, channels, height, width) from clean pixels and sample ids, one or one
        a row, and z (rows, *latent_shape)."""
        return self._process.noisy(x, z, self.level, ids=ids)

    def steady_rows(self) -> tuple[int, int]:
        """Rows of a forward pass, and of a pass that differentiates one number per row, for
        searches that depend on the last digits."""
        engine = self.engine
        shape = self.x.shape[1:]
        return engine.steady(engine.rows(shape)), engine.steady(engine.gradient_rows(shape, 1))

    def gram(self, gradients: Tensor, x: Tensor) -> Tensor:
        """u_i^T S u_j of unit noise for gradients (n, margins, pixels) of the images ``x``;
        float64."""
        return self._process.gram(gradients, x)

    @property
    def _process(self) -> NoiseProcess:
        return self.engine.noises[self.at.noise]

    @cached_property
    def others(self) -> Tensor:
        """Class of each margin (n, classes - 1)."""
        return other_classes(self.predicted, self.classes)

    def noisy_logits(
        self,
        draws: int,
        images: Sequence[int] | None = None,
        *,
        start: int = 0,
        pairs: bool = False,
        orthogonal: bool = False,
    ) -> Iterator[tuple[NoisyBatch, Tensor]]:
        """Noisy copies of some images (default: all) with their logits:
        :meth:`Engine.noisy_logits`; ``image`` is an index into these."""
        subset = None if images is None or [*images] == [*range(len(self.x))] else list(images)
        x, ids = (
            (self.x, self.ids)
            if subset is None
            else (self.x[subset], [self.ids[b] for b in subset])
        )
        return self.engine.noisy_logits(
            x, ids, self.at, draws, start=start, pairs=pairs, orthogonal=orthogonal
        )

    def noisy(self, draws: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Logits of noisy copies, batch by batch: ``draws`` copies of each image in all.

        `mc` uses the same copies. A copy with non-finite logits counts as a failure: its logits
        become 0, and -1e30 for the class of the clean image; the row's note states their number.
        The caller may keep and change the tensors.

        Args:
            draws: noisy copies of each image.

        Yields:
            logits, float64 (n, classes), and the image of each row as an index into the chunk,
            int64 (n,).
        """
        for batch, raw in self.noisy_logits(draws):
            logits = raw.to(torch.float64, copy=True)
            image = batch.image
            broken = ~logits.isfinite().all(1)
            if broken.any():
                logits[broken] = 0.0
                logits[broken, self.predicted[image[broken]]] = NEVER
                self.lost.update(image[broken].tolist())
            yield logits, image

    def nearest(self, z: Tensor, selection: Selection | None = None) -> list[int]:
        """The class of the smallest z (n, k), which is the likeliest flip; ``selection``: the
        selected classes, if any."""
        classes = (
            self.others
            if selection is None
            else torch.where(selection.others < 0, selection.others[:, :1], selection.others)
        )
        labels: list[int] = classes.gather(1, z.argmin(1, keepdim=True))[:, 0].tolist()
        return labels

    def tangent(self, most: int | None = None) -> Tangent:
        """Margins and gradients at the clean images, of all classes (once for all levels), or of
        the ``most`` that matter at this level.

        They take passes of their own: a network may round differently while gradients are recorded.
        """
        key = self.at.noise if most is None else (self.at, most)
        if key not in self._tangents:
            self._tangents[key] = self._tangent(most)
        return self._tangents[key]

    def noisy_linear(
        self, draws: int, *, pairs: bool, groups: int, most: int | None = None
    ) -> LinearFit:
        """Mean margins and gradients over noisy copies, in groups of draws; computed once for equal
        arguments.

        Memory is images x groups x margins x pixels for any number of draws; ``most`` limits the
        margins.
        """
        key = (draws, pairs, groups, most)
        if key not in self._fits:
            self._fits[key] = self._noisy_linear(draws, pairs, groups, most)
        return self._fits[key]

    def _tangent(self, most: int | None) -> Tangent:
        selection = (
            self._all()
            if most is None
            else keep_margins(self.margins, self._slopes(), self.others, most)
        )
        k = selection.others.shape[1]
        rows = self.engine.gradient_rows(self.x.shape[1:], k)
        if most is not None and self.x.device.type == "cpu":
            rows = min(rows, _ALIKE_ROWS)
        mean = (
            self.margins
            if most is None
            else torch.empty((len(self.x), k), dtype=torch.float64, device=self.x.device)
        )
        gram = torch.empty((len(self.x), k, k), dtype=torch.float64, device=self.x.device)
        for part in selection.counts.argsort(stable=True).split(
            rows
        ):  # images with similarly many margins share passes
            full = padded(part, rows)
            outputs = margin_gradients(
                self.model,
                self.x[full],
                self.predicted[full],
                None if most is None else selection.others[full],
            )
            g, u = (out[: len(part)] for out in outputs[1:])
            gram[part] = self.gram(u, self.x[part])
            if most is not None:
                mean[part] = g.double()
        return Tangent(mean, gram, selection)

    def _all(self) -> Selection:
        """The selection of all margins."""
        none = torch.zeros(len(self.x), dtype=torch.float64, device=self.x.device)
        return Selection(self.others, torch.full_like(self.predicted, self.classes - 1), none, none)

    def _slopes(self) -> Tensor:
        """Estimated variance of each margin's tangent (n, classes - 1), by differences over a short
        step along each of 8 draws."""
        short = replace(self.at, level=self._process.additive.shrunk(self.level, _STEP))
        g = self._few_margins(short, pairs=False) - self.margins[:, None]
        return mean_over(g.square(), 1) / _STEP**2

    def _few_margins(self, at: NoiseLevel, *, pairs: bool) -> Tensor:
        """Margins of the first 8 noisy copies (n, 8, classes - 1), float64."""
        n = len(self.x)
        draws = SELECTING_FORWARDS
        logits = torch.empty((n * draws, self.classes), dtype=torch.float64, device=self.x.device)
        for batch, part in self.engine.noisy_logits(self.x, self.ids, at, draws, pairs=pairs):
            logits[batch.image * draws + batch.draw] = part.double()
        return margins(logits, self.predicted.repeat_interleave(draws)).view(n, draws, -1)

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        """Estimated mean and variance of each margin under the noise (n, classes - 1), from 4
        antithetic pairs."""
        even, odd = halves(self._few_margins(self.at, pairs=True))
        return mean_over(even, 1), variance_over(even, 1) + mean_over(odd.square(), 1)

    def _noisy_linear(self, draws: int, pairs: bool, groups: int, most: int | None) -> LinearFit:
        selection = self._all() if most is None else keep_margins(*self._moments, self.others, most)
        n, k = selection.others.shape
        per_unit = 2 if pairs else 1
        units = draws // per_unit
        mean = torch.zeros((n * groups, k), dtype=torch.float64, device=self.x.device)
        gradients = torch.zeros(
            (n * groups, k, self.x[0].numel()), dtype=self.x.dtype, device=self.x.device
        )
        rows = self.engine.gradient_rows(self.x.shape[1:], k)
        order = selection.counts.argsort(stable=True)
        x = self.x[order]
        ids = [self.ids[b] for b in order.tolist()]
        for batch in self.engine.noisy_batches(x, ids, self.at, draws, rows, pairs=pairs):
            image = order[batch.image]
            full = order[padded(batch.image, rows)]
            outputs = margin_gradients(
                self.model,
                batch.padded,
                self.predicted[full],
                None if most is None else selection.others[full],
            )
            g, u = (out[: len(image)] for out in outputs[1:])
            slot = image * groups + (batch.draw // per_unit) * groups // units
            mean.index_add_(0, slot, g.double())
            gradients.index_add_(0, slot, u)
        counts = (
            torch.bincount(
                torch.arange(units, device=self.x.device) * groups // units, minlength=groups
            )
            * per_unit
        )
        mean = mean.view(n, groups, k) / counts[:, None]
        gradients = gradients.view(n, groups, k, -1).div_(counts.to(gradients.dtype)[:, None, None])
        return LinearFit(mean, gradients, counts, selection)
