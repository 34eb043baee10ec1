"""The nearest flip of each image that attacks find: an upper bound of its distance to the decision boundary.

A chain is a perturbation d with a radius R. One gradient w of z_j - z_y at x + d, of the class j whose logit was the largest other one at
the chain's last point, gives both:

- R <- R + (z_y - z_j) / rate, Newton's step to the radius at which the linearised margin is zero along the ray of d (rate: how fast the
  difference of the logits rises with the norm),
- d <- the point of the ball of the new radius (within [0, 1], if asked for) next to d + eta R s, s the steepest direction of norm 1.

eta falls from 1 to .01 with a cosine. With eta -> infinity and l2 this is SuperDeepFool's iteration d <- c w / |w|^2, which jumps to and
fro where the boundary is bent; with small eta it slides along the boundary. For l_inf it is projected gradient ascent in a ball that
follows the boundary, as in FMN, whose radius changes by a fixed factor instead.

Boundaries of networks have many local minima, and the better half of the work is in the starts: a few from the image itself, towards the
nearest linearised boundaries, and most from noise, 1 to 10 times as far out as the best flip so far. A chain that keeps to one class ends
where another one is nearer. Where no chain meets a flip, rays by the signs of gradients and of noise are looked at. Then the best point is
polished, its ray is searched for an earlier flip, and bisected. All chains of an image run in lock-step; whatever ended costs nothing
further.

Sources: Moosavi-Dezfooli et al. 2016 (DeepFool); Abdollahpoorrostam et al. 2023 (SuperDeepFool); Rony et al. 2019 (DDN); Pintor et al.
2021 (FMN); Croce and Hein 2020 (FAB, whose starts for each class and from noise these are). The combination, and Newton's step for the
radius, are robaudit's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import torch
from torch import Tensor

from robaudit.numerics.norm_steps import Norm, Rooms, dots, dual_size, size
from robaudit.numerics.rowwise import least_rows

Logits = Callable[[Tensor, Tensor], Tensor]
"""Image of each row (rows,) and pixels (rows, *shape) -> logits (rows, classes)."""

Slopes = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""Image (rows,), pixels (rows, *shape) and class j of each row (rows,) -> logits (rows, classes), gradient of z_j - z_y (rows, *shape)."""


class Randomness(Protocol):
    """Random numbers of each image."""

    def uniforms(self, restart: int) -> Tensor:
        """On [0, 1], for each image of the batch (images, *shape), of the type of the pixels."""
        ...


class Origin(IntEnum):
    """Where the nearest flip came from."""

    NONE = 0
    MISCLASSIFIED = 1
    CHAIN = 2
    RESTART = 3
    POLISH = 4
    OTHER_NORM = 5
    RAY = 6


@dataclass(frozen=True, slots=True)
class Search:
    """How to look for the nearest flip.

    Attributes:
        norm: of the perturbation.
        clipped: whether pixels stay in [0, 1], which those of the images do.
        cap: the largest radius of interest; what lies farther counts as not found.
        candidates: the classes with the largest other logits of which the linearised boundary is looked at, one gradient each.
        targets: how many of them, the nearest linearised boundaries, a chain from the image goes to first.
        restarts: chains from noise in l2; a third as many in linf, whose local minima differ less.
        steps: gradients of each chain, that from the best flip in another norm included.
        polish: gradients of the last chain, from the best point.
    """

    norm: Norm
    clipped: bool = False
    cap: float = math.inf
    candidates: int = 9
    targets: int = 1
    restarts: int = 9
    steps: int = 18
    polish: int = 45

    @property
    def noisy(self) -> int:
        """Chains from noise."""
        return self.restarts if self.norm == "l2" else math.ceil(self.restarts / 3)


@dataclass(frozen=True, slots=True)
class Flips:
    """The nearest flip of each image.

    Attributes:
        pixels: where it is (images, *shape); the image itself where none was found.
        radius: the norm of the difference of these pixels and the image's (images,), float64; infinite where none was found.
        label: the class there (images,); the given one where none was found.
        origin: :class:`Origin` of each (images,), int64.
        gradients, forwards: passes that each image took (images,), int64; a gradient is a forward and a backward pass.
    """

    pixels: Tensor
    radius: Tensor
    label: Tensor
    origin: Tensor
    gradients: Tensor
    forwards: Tensor

    @property
    def found(self) -> Tensor:
        """Images with a flip (images,), bool."""
        return self.radius.isfinite()


_FIRST, _LAST = 1.0, 0.01  # eta of a chain
_POLISH = 0.1  # eta of the last one, at first
_BEYOND = 2e-4  # a chain aims this far past the boundary, relatively
_CHANGE = 0.5  # of a radius in one step, at most
_SPREADS = (2.0, 1.0, 10.0, 4.0)  # norms of the noise of restarts in turn, in radii found so far
_BLIND = 0.1  # the noise of a restart where nothing was found: l_inf, or root mean square
_SETTLED = 2e-5  # a chain ends where the nearest point of the linearised boundary is no nearer than this, relatively, than its own ray's
_NEAR = 0.01  # and is on the boundary, relatively
_GRID, _BISECTIONS = 16, 12  # of the ray: to 1 / 16 / 4096 of the radius
_RAYS, _LENGTHS = 4, 6  # where no chain met a flip: rays of each kind, and points of each, the last with a step of 1 in every pixel
_PUSHES = 12  # outwards, where a pass without gradients sees no flip


def nearest_flips(logits: Logits, slopes: Slopes, x: Tensor, y: Tensor, search: Search, random: Randomness) -> Flips:
    """:func:`shared_flips` in a single norm."""
    return shared_flips(logits, slopes, x, y, [search], random)[0]


def shared_flips(logits: Logits, slopes: Slopes, x: Tensor, y: Tensor, searches: Sequence[Search], random: Randomness) -> list[Flips]:
    """The nearest pixels to each image that the model classifies otherwise, as far as the search finds them, in several norms.

    Each is verified by a pass without gradients. A flip that is met on the way counts in every norm, whichever it was met for. An image's
    result is a function of itself and its randomness alone, whatever else is in the batch, if those of ``logits`` and ``slopes`` are.

    Args:
        logits, slopes: of the model; ``slopes`` counts as one gradient for each row.
        x: images (images, *shape).
        y: the class of each (images,).
        searches: what to do, alike but for norm and cap.
        random: for the restarts.

    Returns:
        The flips in each norm. Passes are those of all norms together.
    """
    hunts: list[_Hunt] = []
    passes = _Passes(logits, slopes, x, y, searches[0].clipped, hunts)
    hunts += [_Hunt(passes, search) for search in searches]
    passes.look()
    linear = passes.linearised(searches[0].candidates)
    for hunt in hunts:
        hunt.descend(linear)
    restarts = max(search.noisy for search in searches)
    for restart in range(restarts):
        uniforms = random.uniforms(restart)
        for hunt, search in zip(hunts, searches, strict=True):
            if restart < search.noisy:
                hunt.restart(uniforms, restart)
    blind = hunts[0].blind()  # of all hunts: they share their flips
    if len(blind):
        passes.cast(blind, linear, [random.uniforms(restarts + ray) for ray in range(_RAYS)])
    for hunt in hunts:
        for other in hunts:
            if other is not hunt:
                hunt.borrow(other)
    for hunt in hunts:
        hunt.polish()
    for hunt in hunts:
        hunt.bisect()
    return [hunt.result() for hunt in hunts]


def passes_of(searches: Sequence[Search]) -> tuple[int, int]:
    """The most gradients, and further passes, that an image takes in searches that share what they find."""
    norms = len(searches)
    chains = sum((one.targets + one.noisy + norms - 1) * one.steps + one.polish for one in searches)
    return searches[0].candidates + chains, 1 + 3 * _RAYS * _LENGTHS + norms * (_GRID - 1 + _BISECTIONS + _PUSHES)


@dataclass(frozen=True, slots=True)
class _Linear:
    """The margins of each image's next classes (images, k): the classes, z_y - z_j, float64, and their slopes (images, k, d)."""

    targets: Tensor
    margin: Tensor
    slope: Tensor


class _Passes:
    """The model at perturbed images. Every flip that it meets is shown to all hunts."""

    def __init__(self, logits: Logits, slopes: Slopes, x: Tensor, y: Tensor, clipped: bool, hunts: Sequence[_Hunt]) -> None:
        self._logits, self._slopes, self._clipped, self._hunts = logits, slopes, clipped, hunts
        self.x, self.y, self.flat = x, y, x.flatten(1)
        self.everything = torch.arange(len(x), device=x.device)
        self.gradients, self.forwards = torch.zeros(2, len(x), dtype=torch.int64, device=x.device)

    def look(self) -> None:
        """Judge the images themselves; ``right`` are those of the given class."""
        self._clean = self._passed(self.everything, self.x)
        self._show(self.everything, torch.zeros_like(self.flat), self.x, self._labels(self.everything, self._clean), Origin.MISCLASSIFIED)
        self.right = (self._labels(self.everything, self._clean) == self.y).nonzero()[:, 0]

    def linearised(self, candidates: int) -> _Linear:
        """The margins of the classes with the largest other logits, one gradient each."""
        others = self._clean.scatter(1, self.y[:, None], -torch.inf)
        targets = others.argsort(dim=1, descending=True, stable=True)[:, : min(candidates, others.shape[1] - 1)]
        margin = torch.zeros_like(targets, dtype=torch.float64)
        slope = self.flat.new_zeros(*targets.shape, self.flat.shape[1])
        rows = self.right
        for k in range(targets.shape[1]):
            margin[rows, k], slope[rows, k] = self.sloped(rows, torch.zeros_like(self.flat[rows]), targets[rows, k], Origin.NONE)[:2]
        return _Linear(targets, margin, slope)

    def sloped(self, image: Tensor, d: Tensor, target: Tensor, origin: Origin) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """z_y - z_j (rows,), float64, the gradient of its negative (rows, d), whether the class is another, and the class with the
        largest other logit (rows,).
        """
        self.gradients.index_add_(0, image, torch.ones_like(image))
        pixels = self.pixels(image, d)
        logits, w = self._slopes(image, pixels, target)
        flipped = self._show(image, d, pixels, self._labels(image, logits), origin)
        own = self.y[image][:, None]
        margin = (logits.gather(1, own).double() - logits.gather(1, target[:, None]).double())[:, 0]
        return margin, w.flatten(1).nan_to_num(0.0, 0.0, 0.0), flipped, logits.scatter(1, own, -torch.inf).argmax(1)

    def cast(self, image: Tensor, linear: _Linear, uniforms: Sequence[Tensor]) -> None:
        """Look along rays, by the signs of the slopes at the image, of noise and of its negative, with steps up to 1 in every pixel.

        Args:
            image: where to look (n,).
            linear: the slopes.
            uniforms: noise on [0, 1] of all images (images, *shape).
        """
        noise = [one[image].flatten(1).to(self.flat.dtype) - 0.5 for one in uniforms]
        for ray in [*linear.slope[image, :_RAYS].unbind(1), *noise, *(-one for one in noise)]:
            for halvings in range(_LENGTHS):
                pixels = self.pixels(image, ray.sign() / 2**halvings)
                self.flips(image, (pixels - self.x[image]).flatten(1), Origin.RAY)

    def flips(self, image: Tensor, d: Tensor, origin: Origin | None = None) -> Tensor:
        """Whether the class is another in a plain pass (rows,); a nearer flip is kept."""
        return self._show(image, d, self.pixels(image, d), self.label(image, d), origin)

    def label(self, image: Tensor, d: Tensor) -> Tensor:
        """The class in a plain pass (rows,)."""
        return self._labels(image, self._passed(image, self.pixels(image, d)))

    def pixels(self, image: Tensor, d: Tensor) -> Tensor:
        """The perturbed images (rows, *shape), in [0, 1] to the last bit where they have to be."""
        pixels: Tensor = self.x[image] + d.view(-1, *self.x.shape[1:])
        return pixels.clamp(0.0, 1.0) if self._clipped else pixels

    def _labels(self, image: Tensor, logits: Tensor) -> Tensor:
        """The classes (rows,); the given one where a logit is not finite, as that is no flip."""
        return torch.where(logits.isfinite().all(1), logits.argmax(1), self.y[image])

    def _passed(self, image: Tensor, pixels: Tensor) -> Tensor:
        self.forwards.index_add_(0, image, torch.ones_like(image))
        return self._logits(image, pixels)

    def _show(self, image: Tensor, d: Tensor, pixels: Tensor, label: Tensor, origin: Origin | None) -> Tensor:
        """Let every hunt keep what is nearer than its best; returns which rows are flips."""
        flipped = label != self.y[image]
        if len(image):
            added = (pixels.double() - self.x[image].double()).flatten(1)
            for hunt in self._hunts:
                hunt.keep(image, d, added, label, flipped, origin)
        return flipped


class _Hunt:
    """The search in a norm: the best flip of each image."""

    def __init__(self, passes: _Passes, search: Search) -> None:
        self._passes, self._search = passes, search
        flat = passes.flat
        self._rooms = Rooms(search.norm, -flat, 1 - flat) if search.clipped else Rooms(search.norm)
        self._best = torch.zeros_like(flat)
        self._radius = torch.full((len(flat),), torch.inf, dtype=torch.float64, device=flat.device)
        self._label = passes.y.clone()
        self._origin = torch.full((len(flat),), int(Origin.NONE), device=flat.device)

    def keep(self, image: Tensor, d: Tensor, added: Tensor, label: Tensor, flipped: Tensor, origin: Origin | None) -> None:
        """Keep what is nearer than the best of its image.

        Args:
            image, d, label: of each row.
            added: to the pixels, after rounding (rows, d), float64.
            flipped: rows that count.
            origin: of the rows; None: that of the best so far.
        """
        radius = torch.where(flipped, size(added, self._search.norm), torch.inf)
        row, has = least_rows(radius, image, len(self._radius))
        nearer = has & (radius[row] < self._radius)
        self._radius = torch.where(nearer, radius[row], self._radius)
        self._best = torch.where(nearer[:, None], d[row], self._best)
        self._label = torch.where(nearer, label[row], self._label)
        if origin is not None:
            self._origin.masked_fill_(nearer, int(origin))

    def descend(self, linear: _Linear) -> None:
        """Chains from the nearest linearised boundaries; ranks the classes by the radius that their chain reached, then the others."""
        rooms, first = self._rooms, min(self._search.targets, linear.targets.shape[1])
        points = torch.stack([rooms.nearest(w, m * (1 + _BEYOND)) for w, m in zip(linear.slope.unbind(1), linear.margin.T, strict=True)], 1)
        away = torch.stack([size(one, self._search.norm) for one in points.unbind(1)], 1)
        away = torch.where((linear.slope != 0).any(2), away, torch.inf)
        order = away.argsort(dim=1, stable=True)
        targets = linear.targets.gather(1, order)
        start = points.gather(1, order[:, :first, None].expand(-1, -1, points.shape[2])).flatten(0, 1)
        image = self._passes.everything.repeat_interleave(first)
        right = (self._passes.right[:, None] * first + torch.arange(first, device=image.device)).flatten()
        reached = self.chase(right, image, targets[:, :first].flatten(), start, _FIRST, self._search.steps, Origin.CHAIN)
        order = reached.view(-1, first).argsort(dim=1, stable=True)
        self._nearest = torch.cat([targets.gather(1, order), targets[:, first:]], dim=1)

    def restart(self, uniforms: Tensor, number: int) -> None:
        """A chain from noise, so many times as far out as the best flip."""
        noise = 2 * uniforms.flatten(1).to(self._best.dtype) - 1
        blind = _BLIND * 2.0**number * (1.0 if self._search.norm == "linf" else math.sqrt(noise.shape[1]))
        radius = torch.where(self._radius.isfinite(), self._radius * _SPREADS[number % len(_SPREADS)], blind).clamp_max(self._search.cap)
        scale = (radius / size(noise, self._search.norm).clamp_min(1e-30)).to(noise.dtype)
        start, target = self._rooms.boxed(noise * scale[:, None]), self._nearest[:, number % self._nearest.shape[1]]
        everything = self._passes.everything
        self.chase(self._passes.right, everything, target, start, _FIRST, self._search.steps, Origin.RESTART)

    def blind(self) -> Tensor:
        """The images without any flip (blind,)."""
        return self._radius.isinf().nonzero()[:, 0]

    def borrow(self, other: _Hunt) -> None:
        """A chain from the best flip in another norm."""
        everything = self._passes.everything
        self.chase(other._flipped(), everything, other._label, other._best, _POLISH, self._search.steps, Origin.OTHER_NORM)

    def chase(self, active: Tensor, image: Tensor, target: Tensor, d: Tensor, eta: float, steps: int, origin: Origin) -> Tensor:
        """Run chains. The host waits for the device once a step, for what has ended.

        Args:
            active: which of the chains to run.
            image: of each (chains,).
            target: the class of the first gradient of each (chains,).
            d: where they start (chains, d).
            eta: of the first step, relative to the radius.
            steps: gradients of each.
            origin: of what they find.

        Returns:
            The smallest flip of each (chains,), float64; infinite where there was none.
        """
        norm, reached = self._search.norm, torch.full((len(image),), torch.inf, dtype=torch.float64, device=d.device)
        d, target = d[active], target[active]
        for step in range(steps):
            if not len(active):
                break
            who = image[active]
            margin, w, flipped, nearest_class = self._passes.sloped(who, d, target, origin)
            rooms, radius = self._rooms.of(who), size(d, norm)
            reached[active] = torch.where(flipped, torch.minimum(reached[active], radius), reached[active])
            if step == steps - 1:
                break
            rate = rooms.rate(w, d)
            newton = margin / rate.clamp_min(1e-30)
            change = (newton + _BEYOND * radius).clamp(-_CHANGE * radius, _CHANGE * radius)
            wanted = (radius + change).clamp_max(self._search.cap)
            nearest = (margin + dots(w, d)) / dual_size(w, norm).clamp_min(1e-30)
            settled = (
                flipped & (nearest_class == target) & (newton.abs() <= _NEAR * radius) & ((radius + newton) * (1 - _SETTLED) <= nearest)
            )
            length = _LAST * eta + (1 - _LAST) * eta * (1 + math.cos(math.pi * step / steps)) / 2
            d = rooms.onto_ball(d + rooms.steepest(w, d) * (length * wanted).to(d.dtype)[:, None], wanted)
            going = (~settled & d.isfinite().all(1)).nonzero()[:, 0]
            active, d, target = active[going], d[going], nearest_class[going]
        return reached

    def polish(self) -> None:
        """Slide along the boundary from the best point."""
        everything = self._passes.everything
        self.chase(self._flipped(), everything, self._label, self._best, _POLISH, self._search.polish, Origin.POLISH)

    def bisect(self) -> None:
        """Take the first flip on the ray to the best point, as far as a coarse grid sees it, and bisect before it."""
        image = self._flipped()
        whole = self._best[image]
        upper = torch.ones(len(image), dtype=torch.float64, device=image.device)
        for number in range(1, _GRID):
            part = upper.new_full((len(image),), number / _GRID)
            upper = torch.where((upper == 1) & self._flips_at(image, whole, part), part, upper)
        lower = upper - 1 / _GRID
        for _ in range(_BISECTIONS):
            middle = (lower + upper) / 2
            flips = self._flips_at(image, whole, middle)
            lower, upper = torch.where(flips, lower, middle), torch.where(flips, middle, upper)

    def result(self) -> Flips:
        """The best flips, each verified by a pass of its own, and moved outwards a little where it takes that."""
        passes, norm, image = self._passes, self._search.norm, self._flipped()
        for number in range(_PUSHES):
            if number:
                self._best[image] *= 1 + 1e-6 * 2.0**number
            label = passes.label(image, self._best[image])
            self._label[image] = label
            image = image[label == passes.y[image]]
            if not len(image):
                break
        self._radius[image] = torch.inf
        pixels = passes.pixels(passes.everything, self._best)
        radius = size((pixels.double() - passes.x.double()).flatten(1), norm)
        found = self._radius.isfinite() & (radius <= self._search.cap)
        return Flips(
            torch.where(found.view(-1, *[1] * (pixels.ndim - 1)), pixels, passes.x),
            torch.where(found, radius, torch.inf),
            torch.where(found, self._label, passes.y),
            torch.where(found, self._origin, int(Origin.NONE)),
            passes.gradients,
            passes.forwards,
        )

    def _flipped(self) -> Tensor:
        """The images with a flip that is not at the image itself."""
        return ((self._radius > 0) & self._radius.isfinite()).nonzero()[:, 0]

    def _flips_at(self, image: Tensor, whole: Tensor, part: Tensor) -> Tensor:
        return self._passes.flips(image, whole * part.to(whole.dtype)[:, None])
