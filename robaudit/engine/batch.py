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

from robaudit.engine.passes import Engine, NoisyRows, padded
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

# The step of finite differences, as a share of the noise level: short enough for the tangent, and a
# power of two, by which division is exact.
_STEP = 1 / 64
_NO_NOISE = NoiseLevel()
# Rows of a pass over selected margins on the CPU: as fast as more rows (measured), and fewer images
# are padded to the most margins of any image in the pass.
_SELECTED_ROWS = 8


@dataclass(frozen=True, slots=True)
class LinearFit:
    """Linear fits g_i ~ c_i + u_i . eps of the margins, for each image and group of draws.

    A padding margin (class -1) has c = 1 and u = 0, so that it never fails.

    Attributes:
        mean: the margins c (images, groups, margins), float64.
        gradients: their gradients u (images, groups, margins, pixels).
        counts: number of draws in each group (groups,).
        selection: the classes of the margins.
    """

    mean: Tensor
    gradients: Tensor
    counts: Tensor
    selection: Selection


@dataclass(frozen=True, slots=True)
class Tangent:
    """Tangents of the margins at the clean images; conventions as in :class:`LinearFit`.

    Attributes:
        mean: the margins c (images, margins), float64.
        gram: u_i^T S u_j, their covariance under unit noise (images, margins, margins), float64.
        selection: the classes of the margins.
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
        predicted: class of each clean image (n,).
        lost: number of noisy copies with non-finite logits by image, as counted by :meth:`noisy`.
    """

    ids: Sequence[str]
    x: Tensor
    labels: Tensor
    at: NoiseLevel
    engine: Engine
    predicted: Tensor
    lost: Counter[int] = field(default_factory=Counter, repr=False)
    _fits: dict[tuple[object, ...], LinearFit] = field(default_factory=dict, repr=False)
    # Shared by the batches of all levels: tangents of all margins do not depend on the level.
    _tangents: dict[object, Tangent] = field(default_factory=dict, repr=False)
    _clean: dict[str, Tensor] = field(default_factory=dict, repr=False)

    @classmethod
    def from_images(
        cls,
        engine: Engine,
        x: Tensor,
        at: NoiseLevel = _NO_NOISE,
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
        return cls(names, x, known, at, engine, predicted, _clean={"logits": logits})

    def under(self, at: NoiseLevel) -> ImageBatch:
        """The same images at another noise level."""
        return replace(self, at=at, lost=Counter(), _fits={})

    def select(self, keep: Tensor) -> ImageBatch:
        """The images where ``keep`` (n,), bool, is true."""
        return ImageBatch(
            ids=list(compress(self.ids, keep.tolist())),
            x=self.x[keep],
            labels=self.labels[keep],
            at=self.at,
            engine=self.engine,
            predicted=self.predicted[keep],
            _clean={name: values[keep] for name, values in self._clean.items()},
        )

    @property
    def logits(self) -> Tensor:
        """Logits of the clean images (n, classes), float64.

        Where an earlier session has predicted the classes, the first use takes the clean pass.
        """
        if "logits" not in self._clean:
            self._clean["logits"] = self.engine.logits(self.x)
        return self._clean["logits"]

    @property
    def margins(self) -> Tensor:
        """Logit of the predicted class minus each other logit (n, classes - 1), float64."""
        if "margins" not in self._clean:
            self._clean["margins"] = margins(self.logits, self.predicted)
        return self._clean["margins"]

    def groups(self, values: int) -> tuple[Tensor, ...]:
        """Indices of the images, in groups for a search that holds ``values`` values of each image
        at once."""
        images = max(1, HELD_BYTES // (values * self.x.element_size()))
        every = torch.arange(len(self.x), device=self.x.device)
        groups: tuple[Tensor, ...] = every.split(images)
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
        """The scale of additive noise at this level.

        The covariance of the noise is amplitude^2 times the covariance of unit noise.
        """
        return self._process.amplitude(self.level, shape_of(self.x))

    @property
    def model(self) -> LogitModel:
        """The model for passes in full precision; it clips pixels if the noise requires it."""
        if self.at.noise not in self.engine.noises:
            return self.engine.model
        return self.engine.model_under(self.at.noise)

    @property
    def latent_shape(self) -> tuple[int, ...]:
        """The shape of the normal variables behind a noisy copy."""
        return self.noise.latent_shape(shape_of(self.x))

    def normals(self, purpose: str, image: int, draws: int, start: int = 0) -> Iterator[Tensor]:
        """Standard normal variables of an image, reserved for a purpose, in blocks (n,
        *latent_shape)."""
        key = self._stream(purpose, image)
        return self._process.blocks(key, draws, shape_of(self.x), start)

    def scalars(self, purpose: str, image: int, draws: int) -> Iterator[Tensor]:
        """Standard normal numbers of an image, reserved for a purpose, in blocks (n,)."""
        return self._process.scalars(self._stream(purpose, image), draws)

    def _stream(self, purpose: str, image: int) -> str:
        """The key that seeds the random numbers of an image for a purpose."""
        # The unit separator occurs in no purpose, so the keys of two purposes never coincide.
        return f"{purpose}\x1f{self.ids[image]}"

    def noisy_pixels(self, x: Tensor, ids: Sequence[str], z: Tensor) -> Tensor:
        """Noisy pixels (rows, channels, height, width).

        Args:
            x: clean pixels of one image for all rows, or of an image for each row.
            ids: their sample ids.
            z: normal variables (rows, *latent_shape).
        """
        return self._process.noisy(x, z, self.level, ids=ids)

    def steady_rows(self) -> tuple[int, int]:
        """Rows of passes for searches that depend on the last digits.

        Returns:
            The rows of a forward pass, and of a pass that differentiates one number per row.
        """
        engine = self.engine
        shape = self.x.shape[1:]
        return engine.steady(engine.rows(shape)), engine.steady(engine.gradient_rows(shape, 1))

    def gram(self, gradients: Tensor, x: Tensor) -> Tensor:
        """u_i^T S u_j of unit noise for gradients (n, margins, pixels) of the images ``x``;
        float64."""
        return self._process.gram(gradients, x)

    @property
    def _process(self) -> NoiseProcess:
        """The random numbers and the map of the noise."""
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
    ) -> Iterator[tuple[NoisyRows, Tensor]]:
        """Noisy copies of some images with their logits, by :meth:`Engine.noisy_logits`.

        Args:
            draws: noisy copies of each image.
            images: indices into the chunk; default: all. ``NoisyRows.image`` is then an index into
                these.
            start, pairs, orthogonal: as for :meth:`Engine.noisy_batches`.
        """
        x = self.x
        ids = self.ids
        # Indexing copies the pixels, so all images in order are passed on as they are.
        if images is not None and [*images] != [*range(len(x))]:
            subset = list(images)
            x = x[subset]
            ids = [ids[b] for b in subset]
        return self.engine.noisy_logits(
            x, ids, self.at, draws, start=start, pairs=pairs, orthogonal=orthogonal
        )

    def noisy(self, draws: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Logits of noisy copies, batch by batch.

        They are the copies that `mc` uses. A copy with non-finite logits counts as a failure: its
        logits become 0, and -1e30 for the class of the clean image; the row's note states their
        number. The caller may keep and change the tensors.

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
        """The class to which each image most likely flips: the class of its smallest z.

        Args:
            z: standardised margins (n, k).
            selection: the classes of the margins; default: all other classes.
        """
        classes = self.others
        if selection is not None:
            # Padding has no class; the first margin, the smallest by estimate, takes its place.
            padding = selection.others < 0
            classes = torch.where(padding, selection.others[:, :1], selection.others)
        place = z.argmin(1, keepdim=True)
        nearest: list[int] = classes.gather(1, place)[:, 0].tolist()
        return nearest

    def tangent(self, most: int | None = None) -> Tangent:
        """Margins and gradients at the clean images: all of them, or the ``most`` that matter at
        this level.

        They take passes of their own: a network may round differently while gradients are recorded.
        """
        # Only the selection of margins depends on the level.
        key = self.at.noise if most is None else (self.at, most)
        if key not in self._tangents:
            self._tangents[key] = self._tangent(most)
        return self._tangents[key]

    def noisy_linear(
        self, draws: int, *, pairs: bool, groups: int, most: int | None = None
    ) -> LinearFit:
        """Mean margins and gradients over noisy copies, computed once for equal arguments.

        Memory is images x groups x margins x pixels for any number of draws.

        Args:
            draws: noisy copies of each image.
            pairs: whether they come in antithetic pairs.
            groups: number of groups into which the draws are divided, each with a mean of its own.
            most: the most margins of an image; default: all.
        """
        key = (draws, pairs, groups, most)
        if key not in self._fits:
            self._fits[key] = self._noisy_linear(draws, pairs, groups, most)
        return self._fits[key]

    def _tangent(self, most: int | None) -> Tangent:
        """:meth:`tangent`, computed anew."""
        selection = self._all_margins()
        mean = self.margins
        if most is not None:
            selection = keep_margins(self.margins, self._tangent_variances(), self.others, most)
            shape = selection.others.shape
            mean = torch.empty(shape, dtype=torch.float64, device=self.x.device)
        n, k = selection.others.shape
        rows = self.engine.gradient_rows(self.x.shape[1:], k)
        if most is not None and self.x.device.type == "cpu":
            rows = min(rows, _SELECTED_ROWS)
        gram = torch.empty((n, k, k), dtype=torch.float64, device=self.x.device)
        # A pass takes as many backward passes as its image with the most margins, so images with
        # similarly many share passes.
        for part in selection.counts.argsort(stable=True).split(rows):
            full = padded(part, rows)
            others = None if most is None else selection.others[full]
            outputs = margin_gradients(self.model, self.x[full], self.predicted[full], others)
            g, u = (out[: len(part)] for out in outputs[1:])
            gram[part] = self.gram(u, self.x[part])
            if most is not None:
                mean[part] = g.double()
        return Tangent(mean, gram, selection)

    def _all_margins(self) -> Selection:
        """The selection of all margins."""
        omitted = torch.zeros(len(self.x), dtype=torch.float64, device=self.x.device)
        counts = torch.full_like(self.predicted, self.classes - 1)
        return Selection(self.others, counts, omitted, omitted)

    def _tangent_variances(self) -> Tensor:
        """Estimated variance of each margin's tangent (n, classes - 1), by differences over a short
        step along each of 8 draws."""
        short = replace(self.at, level=self._process.additive.shrunk(self.level, _STEP))
        g = self._few_margins(short, pairs=False) - self.margins[:, None]
        # E[(u . eps)^2] is the variance of u . eps; eps has a share _STEP of its length here.
        return mean_over(g.square(), 1) / _STEP**2

    def _few_margins(self, at: NoiseLevel, *, pairs: bool) -> Tensor:
        """Margins of the first 8 noisy copies (n, 8, classes - 1), float64."""
        n = len(self.x)
        draws = SELECTING_FORWARDS
        shape = (n * draws, self.classes)
        logits = torch.empty(shape, dtype=torch.float64, device=self.x.device)
        for batch, part in self.engine.noisy_logits(self.x, self.ids, at, draws, pairs=pairs):
            logits[batch.image * draws + batch.draw] = part.double()
        return margins(logits, self.predicted.repeat_interleave(draws)).view(n, draws, -1)

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        """Estimated mean and variance of each margin under the noise (n, classes - 1), from 4
        antithetic pairs."""
        # The even part of a margin is the same for +eps and -eps; the odd part changes its sign, so
        # it has mean 0 and is uncorrelated with the even part.
        even, odd = halves(self._few_margins(self.at, pairs=True))
        return mean_over(even, 1), variance_over(even, 1) + mean_over(odd.square(), 1)

    def _noisy_linear(self, draws: int, pairs: bool, groups: int, most: int | None) -> LinearFit:
        """:meth:`noisy_linear`, computed anew."""
        selection = self._all_margins()
        if most is not None:
            selection = keep_margins(*self._moments, self.others, most)
        n, k = selection.others.shape
        device = self.x.device
        # A pair is never split between groups.
        per_unit = 2 if pairs else 1
        units = draws // per_unit
        mean = torch.zeros((n * groups, k), dtype=torch.float64, device=device)
        pixels = self.x[0].numel()
        gradients = torch.zeros((n * groups, k, pixels), dtype=self.x.dtype, device=device)
        rows = self.engine.gradient_rows(self.x.shape[1:], k)
        # Images with similarly many margins share passes, as in :meth:`_tangent`.
        order = selection.counts.argsort(stable=True)
        x = self.x[order]
        ids = [self.ids[b] for b in order.tolist()]
        for batch in self.engine.noisy_batches(x, ids, self.at, draws, rows, pairs=pairs):
            image = order[batch.image]
            full = order[padded(batch.image, rows)]
            others = None if most is None else selection.others[full]
            outputs = margin_gradients(self.model, batch.padded, self.predicted[full], others)
            g, u = (out[: len(image)] for out in outputs[1:])
            # Unit j of an image belongs to its group floor(j groups / units).
            slot = image * groups + (batch.draw // per_unit) * groups // units
            mean.index_add_(0, slot, g.double())
            gradients.index_add_(0, slot, u)
        group_of_unit = torch.arange(units, device=device) * groups // units
        counts = torch.bincount(group_of_unit, minlength=groups) * per_unit
        mean = mean.view(n, groups, k) / counts[:, None]
        # In place: the gradients are the largest tensor of all.
        gradients = gradients.view(n, groups, k, -1)
        gradients.div_(counts.to(gradients.dtype)[:, None, None])
        return LinearFit(mean, gradients, counts, selection)
