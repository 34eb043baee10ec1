"""The nearest flip of each image that attacks find: an upper bound of its distance to the decision boundary.

A chain is a perturbation d with a radius R, and a class j that it is to reach. One gradient w of z_j - z_y at x + d gives both:

- R <- R + (z_y - z_j) / rate, Newton's step to the radius at which the linearised margin is zero along the ray of d (rate: how fast the
  difference of the logits rises with the norm),
- d <- the point of the ball of the new radius (within [0, 1], if asked for) next to d + eta R s, s the steepest direction of norm 1.

eta falls from 1 to .01 with a cosine. With eta -> infinity and l2 this is SuperDeepFool's iteration d <- c w / |w|^2, which jumps to and
fro where the boundary is bent; with small eta it slides along the boundary. For l_inf it is projected gradient ascent in a ball that
follows the boundary, as in FMN, whose radius changes by a fixed factor instead.

Boundaries of networks have many local minima, and the better half of the work is in the starts: several classes (nearest linearised
boundaries first) from the image itself, and the classes that turned out nearest from noise, 2 to 10 times as far out. Then the best point
is polished, its ray is searched for an earlier flip, and bisected. All chains of an image run in lock-step; whatever ended costs nothing
further.

Sources: Moosavi-Dezfooli et al. 2016 (DeepFool); Abdollahpoorrostam et al. 2023 (SuperDeepFool); Rony et al. 2019 (DDN); Pintor et al.
2021 (FMN); Croce and Hein 2020 (FAB, whose starts for each class and from noise these are). The combination, and Newton's step for the
radius, are robaudit's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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


@dataclass(frozen=True, slots=True)
class Search:
    """How to look for the nearest flip.

    Attributes:
        norm: of the perturbation.
        clipped: whether pixels stay in [0, 1], which those of the images do.
        cap: the largest radius of interest; what lies farther counts as not found.
        candidates: the classes with the largest other logits of which the linearised boundary is looked at, one gradient each.
        targets: how many of them, the nearest linearised boundaries, a chain from the image goes for.
        restarts: chains from noise, of the classes that are nearest by then.
        steps: gradients of each chain.
        polish: gradients of the last chain, from the best point.
    """

    norm: Norm
    clipped: bool = False
    cap: float = math.inf
    candidates: int = 9
    targets: int = 2
    restarts: int = 6
    steps: int = 18
    polish: int = 45

    @property
    def gradients(self) -> int:
        """The most that an image takes."""
        return self.candidates + (self.targets + self.restarts) * self.steps + self.polish

    @property
    def forwards(self) -> int:
        """The most further passes that it takes."""
        return 1 + (_GRID - 1) + _BISECTIONS + _PUSHES


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
_SPREADS = (2.0, 10.0, 4.0)  # norms of the noise of restarts in turn, in radii found so far
_BLIND = 0.1  # the noise of a restart where nothing was found: l_inf, or root mean square
_SETTLED = 2e-5  # a chain ends where the nearest point of the linearised boundary is no nearer than this, relatively, than its own ray's
_NEAR = 0.01  # and is on the boundary, relatively
_GRID, _BISECTIONS = 16, 12  # of the ray: to 1 / 16 / 4096 of the radius
_PUSHES = 12  # outwards, where a pass without gradients sees no flip


def nearest_flips(logits: Logits, slopes: Slopes, x: Tensor, y: Tensor, search: Search, random: Randomness) -> Flips:
    """The nearest pixels to each image that the model classifies otherwise, as far as the search finds them.

    Each is verified by a pass without gradients. An image's result is a function of itself and its randomness alone, whatever else is in
    the batch, if those of ``logits`` and ``slopes`` are.

    Args:
        logits, slopes: of the model; ``slopes`` counts as one gradient for each row.
        x: images (images, *shape).
        y: the class of each (images,).
        search: what to do.
        random: for the restarts.
    """
    hunt = _Hunt(logits, slopes, x, y, search)
    hunt.look()
    targets, linear = hunt.candidates()
    first = min(search.targets, targets.shape[1])
    everything = torch.arange(len(x), device=x.device)
    image = everything.repeat_interleave(first)
    reached = hunt.chase(hunt.open(image), image, targets[:, :first].flatten(), linear.flatten(0, 1), _FIRST, search.steps, Origin.CHAIN)
    nearest = _ranked(reached.view(len(x), first), targets)
    for restart in range(search.restarts):
        target = nearest[:, restart % nearest.shape[1]]
        start = hunt.noise(random.uniforms(restart), _SPREADS[restart % len(_SPREADS)])
        hunt.chase(hunt.open(everything), everything, target, start, _FIRST, search.steps, Origin.RESTART)
    hunt.polish()
    return hunt.flips(hunt.bisect())


def _ranked(reached: Tensor, targets: Tensor) -> Tensor:
    """The classes by the radius that their chain reached, then those without a chain."""
    order = reached.argsort(dim=1, stable=True)
    return torch.cat([targets.gather(1, order), targets[:, reached.shape[1] :]], dim=1)


class _Hunt:
    """The state of a search: the best flip of each image, and what it cost."""

    def __init__(self, logits: Logits, slopes: Slopes, x: Tensor, y: Tensor, search: Search) -> None:
        self._logits, self._slopes, self._x, self._y, self._search = logits, slopes, x, y, search
        self._flat = x.flatten(1)
        self._rooms = Rooms(search.norm, -self._flat, 1 - self._flat) if search.clipped else Rooms(search.norm)
        images = len(x)
        self._best = torch.zeros_like(self._flat)
        self._radius = torch.full((images,), torch.inf, dtype=torch.float64, device=x.device)
        self._label = y.clone()
        self._origin = torch.full((images,), int(Origin.NONE), device=x.device)
        self._gradients, self._forwards = torch.zeros_like(self._origin), torch.zeros_like(self._origin)

    def look(self) -> None:
        """Judge the images themselves."""
        everything = torch.arange(len(self._x), device=self._x.device)
        self._clean = self._passed(everything, self._x)
        label = self._labels(everything, self._clean)
        wrong = label != self._y
        self._radius.masked_fill_(wrong, 0.0)
        self._origin.masked_fill_(wrong, int(Origin.MISCLASSIFIED))
        self._label = label

    def candidates(self) -> tuple[Tensor, Tensor]:
        """The classes by their linearised boundaries (images, k), nearest first, and the points of those with chains (images, n, d)."""
        others = self._clean.scatter(1, self._y[:, None], -torch.inf)
        count = min(self._search.candidates, others.shape[1] - 1)
        targets = others.argsort(dim=1, descending=True, stable=True)[:, :count]
        away = torch.full(targets.shape, torch.inf, dtype=torch.float64, device=targets.device)
        points = self._flat.new_zeros(len(targets), 0, self._flat.shape[1])
        before = targets[:, :0]
        rows = (self._radius > 0).nonzero()[:, 0]
        for k in range(count):
            margin, w = self._sloped(rows, torch.zeros_like(self._flat[rows]), targets[rows, k], Origin.NONE)[:2]
            point = torch.zeros_like(self._flat)
            point[rows] = self._rooms.of(rows).nearest(w, margin * (1 + _BEYOND))
            away[rows, k] = torch.where(dual_size(w, self._search.norm) > 0, size(point[rows], self._search.norm), torch.inf)
            order = away[:, : k + 1].argsort(dim=1, stable=True)
            points = torch.cat([points, point[:, None]], dim=1)  # those of the nearest so far, in order, and this one
            place = torch.cat([before, before.new_full((len(targets), 1), k)], dim=1)
            before = order[:, : self._search.targets]
            kept = (place[:, None] == before[:, :, None]).long().argmax(2)
            points = points.gather(1, kept[:, :, None].expand(-1, -1, points.shape[2]))
        return targets.gather(1, order), points

    def noise(self, uniforms: Tensor, spread: float) -> Tensor:
        """Starts of restarts (images, d): noise so many times as far out as the best flip."""
        noise = 2 * uniforms.flatten(1).to(self._flat.dtype) - 1
        pixels = noise.shape[1]
        blind = _BLIND * (1.0 if self._search.norm == "linf" else math.sqrt(pixels))
        radius = torch.where(self._radius.isfinite(), self._radius * spread, blind).clamp_max(self._search.cap)
        scale = (radius / size(noise, self._search.norm).clamp_min(1e-30)).to(noise.dtype)
        return self._rooms.boxed(noise * scale[:, None])

    def open(self, image: Tensor) -> Tensor:
        """Rows whose image has no flip at the image itself, by the image of each row (rows,)."""
        return (self._radius[image] > 0).nonzero()[:, 0]

    def chase(self, active: Tensor, image: Tensor, target: Tensor, d: Tensor, eta: float, steps: int, origin: Origin) -> Tensor:
        """Run chains. The host waits for the device once a step, for what has ended.

        Args:
            active: which of the chains to run.
            image, target: of each (chains,).
            d: where they start (chains, d).
            eta: of the first step, relative to the radius.
            steps: gradients of each.
            origin: of what they find.

        Returns:
            The smallest flip of each (chains,), float64; infinite where there was none.
        """
        norm, reached = self._search.norm, torch.full((len(image),), torch.inf, dtype=torch.float64, device=d.device)
        d = d[active]
        for step in range(steps):
            if not len(active):
                break
            who, goal = image[active], target[active]
            margin, w, flipped = self._sloped(who, d, goal, origin)
            rooms, radius = self._rooms.of(who), size(d, norm)
            reached[active] = torch.where(flipped, torch.minimum(reached[active], radius), reached[active])
            if step == steps - 1:
                break
            rate = rooms.rate(w, d)
            newton = margin / rate.clamp_min(1e-30)
            change = (newton + _BEYOND * radius).clamp(-_CHANGE * radius, _CHANGE * radius)
            wanted = (radius + change).clamp_max(self._search.cap)
            nearest = (margin + dots(w, d)) / dual_size(w, norm).clamp_min(1e-30)
            settled = flipped & (newton.abs() <= _NEAR * radius) & ((radius + newton) * (1 - _SETTLED) <= nearest)
            length = _LAST * eta + (1 - _LAST) * eta * (1 + math.cos(math.pi * step / steps)) / 2
            d = rooms.onto_ball(d + rooms.steepest(w, d) * (length * wanted).to(d.dtype)[:, None], wanted)
            going = (~settled & d.isfinite().all(1)).nonzero()[:, 0]
            active, d = active[going], d[going]
        return reached

    def polish(self) -> None:
        """Slide along the boundary from the best point."""
        everything = torch.arange(len(self._x), device=self._x.device)
        self.chase(self._flipped(), everything, self._label, self._best, _POLISH, self._search.polish, Origin.POLISH)

    def bisect(self) -> Tensor:
        """Take the first flip on the ray to the best point, as far as a coarse grid sees it, and bisect before it; returns the images."""
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
        return image

    def _flipped(self) -> Tensor:
        """The images with a flip that is not at the image itself."""
        return ((self._radius > 0) & self._radius.isfinite()).nonzero()[:, 0]

    def flips(self, image: Tensor) -> Flips:
        """The result, with the flip of each of these images verified by a pass of its own."""
        for number in range(_PUSHES):
            if number:
                self._best[image] *= 1 + 1e-6 * 2.0**number
            label = self._labels(image, self._passed(image, self._pixels(image, self._best[image])))
            self._label[image] = label
            image = image[label == self._y[image]]
            if not len(image):
                break
        self._radius[image] = torch.inf
        return self._result()

    def _result(self) -> Flips:
        pixels = self._pixels(torch.arange(len(self._x), device=self._x.device), self._best)
        added = (pixels.double() - self._x.double()).flatten(1)
        found = self._radius.isfinite() & (size(added, self._search.norm) <= self._search.cap)
        radius = torch.where(found, size(added, self._search.norm), torch.inf)
        return Flips(
            torch.where(found.view(-1, *[1] * (pixels.ndim - 1)), pixels, self._x),
            radius,
            torch.where(found, self._label, self._y),
            torch.where(found, self._origin, int(Origin.NONE)),
            self._gradients,
            self._forwards,
        )

    def _flips_at(self, image: Tensor, whole: Tensor, part: Tensor) -> Tensor:
        d = whole * part.to(whole.dtype)[:, None]
        pixels = self._pixels(image, d)
        return self._record(image, d, pixels, self._labels(image, self._passed(image, pixels)), None)

    def _pixels(self, image: Tensor, d: Tensor) -> Tensor:
        """The perturbed images (rows, *shape), in [0, 1] to the last bit where they have to be."""
        pixels: Tensor = self._x[image] + d.view(-1, *self._x.shape[1:])
        return pixels.clamp(0.0, 1.0) if self._search.clipped else pixels

    def _labels(self, image: Tensor, logits: Tensor) -> Tensor:
        """The classes (rows,); the given one where a logit is not finite, as that is no flip."""
        return torch.where(logits.isfinite().all(1), logits.argmax(1), self._y[image])

    def _passed(self, image: Tensor, pixels: Tensor) -> Tensor:
        self._forwards.index_add_(0, image, torch.ones_like(image))
        return self._logits(image, pixels)

    def _sloped(self, image: Tensor, d: Tensor, target: Tensor, origin: Origin) -> tuple[Tensor, Tensor, Tensor]:
        """z_y - z_j (rows,), float64, the gradient of its negative (rows, d), and whether the class is another (rows,)."""
        self._gradients.index_add_(0, image, torch.ones_like(image))
        pixels = self._pixels(image, d)
        logits, w = self._slopes(image, pixels, target)
        flipped = self._record(image, d, pixels, self._labels(image, logits), origin)
        own = logits.gather(1, self._y[image][:, None])[:, 0].double()
        return own - logits.gather(1, target[:, None])[:, 0].double(), w.flatten(1).nan_to_num(0.0, 0.0, 0.0), flipped

    def _record(self, image: Tensor, d: Tensor, pixels: Tensor, label: Tensor, origin: Origin | None) -> Tensor:
        """Keep what is nearer than the best of its image; returns which rows are flips."""
        flipped = label != self._y[image]
        if not len(image):
            return flipped
        added = (pixels.double() - self._x[image].double()).flatten(1)
        radius = torch.where(flipped, size(added, self._search.norm), torch.inf)
        row, has = least_rows(radius, image, len(self._y))
        nearer = has & (radius[row] < self._radius)
        self._radius = torch.where(nearer, radius[row], self._radius)
        self._best = torch.where(nearer[:, None], d[row], self._best)
        self._label = torch.where(nearer, label[row], self._label)
        if origin is not None:
            self._origin.masked_fill_(nearer, int(origin))
        return flipped
