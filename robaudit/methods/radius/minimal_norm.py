"""The nearest flip of each image, as found by attacks: an upper bound of the distance to the
decision boundary.

A chain is a perturbation d with a radius R. A single gradient w of z_j - z_y at x + d, where j was
the class with the largest other logit at the last point of the chain, gives both:

- R <- R + (z_y - z_j) / rate, Newton's step to the radius at which the linearised margin is zero
  along the ray of d (rate: how fast the difference of the logits rises with the norm),
- d <- the point of the ball of the new radius (within [0, 1] if required) nearest to d + eta R s,
  where s is the steepest direction of norm 1.

eta falls from 1 to .01 with a cosine. With eta -> infinity and l2 this is SuperDeepFool's iteration
d <- c w / |w|^2, which jumps back and forth where the boundary is curved. With small eta the chain
slides along the boundary. For l_inf it is projected gradient ascent in a ball that follows the
boundary, as in FMN, except that the FMN radius changes by a fixed factor.

Boundaries of networks have many local minima, so the starts matter most. A few chains start from
the image itself, towards the nearest linearised boundaries. Most start from noise, 1 to 10 times as
far out as the best flip so far. A chain with a fixed target class would end where another class is
nearer. If no chain meets a flip, rays along the signs of gradients and of noise are tried. Then the
best point is polished, and its ray is searched for an earlier flip and bisected. The chains of all
images run in lock-step; a chain that has ended costs nothing more.

Points and gradients stay on the device. After each pass a single table of logits and norms is
copied to the host, which decides in NumPy how far each chain goes: on a GPU a hundred small kernels
would take longer than the pass.

Sources: Moosavi-Dezfooli et al. 2016 (DeepFool); Abdollahpoorrostam et al. 2023 (SuperDeepFool);
Rony et al. 2019 (DDN); Pintor et al. 2021 (FMN); Croce and Hein 2020 (FAB, for the starts towards
each class and from noise). The combination, and Newton's step for the radius, are robaudit's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robaudit.methods.radius.norm_steps import TINY, FeasibleSet, Norm, size

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

Logits = Callable[[Tensor, Tensor], Tensor]
"""Image of each row (rows,) and pixels (rows, *shape) -> logits (rows, classes)."""

Slopes = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""Image (rows,), pixels (rows, *shape) and class j of each row (rows,) -> logits (rows, classes),
gradient of z_j - z_y (rows, *shape)."""


Uniforms = Callable[[int], Tensor]
"""Number of a restart -> random numbers on [0, 1] for each image (images, *shape), of the type of
the pixels."""


@dataclass(frozen=True, slots=True)
class Search:
    """Options of the search for the nearest flip.

    Attributes:
        norm: norm of the perturbation.
        clipped: whether pixels stay in [0, 1]; the images themselves do.
        cap: the largest radius of interest; flips farther out do not count.
        candidates: number of classes whose boundary is linearised, at a gradient each. They are
            those with the largest other logits.
        targets: number of chains from the image, towards the nearest linearised boundaries.
        restarts: number of chains from noise in l2; a third as many in linf, whose local minima
            differ less.
        steps: gradients of each chain, including the chain from the best flip in another norm.
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
        """Number of chains from noise."""
        return self.restarts if self.norm == "l2" else math.ceil(self.restarts / 3)


class Flips(NamedTuple):
    """The nearest flip of each image that a search has met.

    Attributes:
        pixels: the flipped image (images, *shape); the image itself without a flip.
        radius: norm of the perturbation (images,), float64; infinite without a flip.
        label: class of the flip (images,); y without a flip.
        gradients, forwards: passes of each image (images,), int64; a gradient is a forward and a
            backward pass.
        lost: points with non-finite logits, which are no flips (images,), int64.
    """

    pixels: Tensor
    radius: Tensor
    label: Tensor
    gradients: Tensor
    forwards: Tensor
    lost: Tensor

    @classmethod
    def joined(cls, parts: Iterable[Flips]) -> Flips:
        """The flips of several groups of images as one."""
        return cls(*map(torch.cat, zip(*parts, strict=True)))

    @property
    def found(self) -> Tensor:
        """The images with a flip (images,), bool."""
        return self.radius.isfinite()


# The constants were chosen on networks of the benchmark (docs/research/radius.md).
# eta of a chain: at its first step, and at its last one relative to the first.
_FIRST = 1.0
_LAST = 0.01
_POLISH = 0.1  # eta of a chain that starts near the boundary, at its first step
# A chain aims for a point this far beyond the boundary, relative to the radius. The bisection at
# the end takes the excess away.
_BEYOND = 2e-4
_CHANGE = 0.5  # the largest relative change of a radius in a step
# Norms of the restarts' noise in turn, in units of the best radius so far.
_SPREADS = (2.0, 1.0, 10.0, 4.0)
_BLIND = 0.1  # size of a restart's noise without a flip so far: l_inf, or root mean square
# A chain ends once Newton's step is shorter than _NEAR, relative to the radius, and no point of the
# linearised boundary is nearer than the one on its ray by more than _SETTLED. The bisection at the
# end resolves about as much, 1.5e-5.
_SETTLED = 2e-5
_NEAR = 0.01
# The last search along the ray of the best flip: a grid, then bisection between two of its points,
# down to 1 / 16 / 4096 of the radius.
_GRID = 16
_BISECTIONS = 12
# If no chain met a flip: number of rays of each kind, and of points on each ray. The farthest has a
# step of 1 in every pixel.
_RAYS = 4
_LENGTHS = 6
_PUSHES = 12  # attempts to move outwards if a plain pass sees no flip


def shared_flips(
    logits: Logits,
    slopes: Slopes,
    x: Tensor,
    y: Tensor,
    searches: Sequence[Search],
    uniforms: Uniforms,
) -> list[Flips]:
    """Search for the nearest flip of each image in several norms.

    A pass without gradients verifies each flip. A flip met on the way counts in every norm. The
    result of an image depends only on itself and its random numbers, not on the batch, if that
    holds for ``logits`` and ``slopes``.

    Args:
        logits, slopes: of the model; ``slopes`` counts as a gradient for each row.
        x: images (images, *shape).
        y: the class of each image (images,).
        searches: the options, which differ only in norm and cap.
        uniforms: random numbers for the restarts.

    Returns:
        The flips in each norm. Passes and lost points of all norms together are counted with the
        first.
    """
    searchers: list[BoundarySearch] = []
    passes = _Passes(logits, slopes, x, y, searches[0].clipped, searchers)
    searchers += [BoundarySearch(passes, search) for search in searches]
    passes.classify_images()
    linear = passes.linearised(searches[0].candidates)
    for searcher in searchers:
        searcher.descend(linear)
    restarts = max(search.noisy for search in searches)
    for restart in range(restarts):
        # The norms share the noise, so that both need no more random numbers than one.
        noise = uniforms(restart)
        for searcher, search in zip(searchers, searches, strict=True):
            if restart < search.noisy:
                searcher.restart(noise, restart)
    blind = np.flatnonzero(np.isinf(searchers[0].radius))  # the same for all norms
    if len(blind):
        passes.cast_rays(blind, linear, [uniforms(restarts + ray) for ray in range(_RAYS)])
    for searcher in searchers:
        for other in searchers:
            if other is not searcher:
                searcher.start_from(other)
    # Flips count in every norm, so each step is done in all norms before the next one begins.
    for searcher in searchers:
        searcher.polish()
    for searcher in searchers:
        searcher.bisect()
    for searcher in searchers:
        searcher.verify()
    first, *others = [searcher.result() for searcher in searchers]
    # The passes are shared: they are counted once, with the first norm.
    none = torch.zeros_like(first.lost)
    uncounted = [flips._replace(gradients=none, forwards=none, lost=none) for flips in others]
    return [first, *uncounted]


def passes_of(searches: Sequence[Search]) -> tuple[int, int]:
    """The most gradients, and further passes, of an image in searches that share their flips."""
    norms = len(searches)
    gradients = searches[0].candidates
    for search in searches:
        # Each search also starts a chain from the best flip of every other norm.
        chains = search.targets + search.noisy + norms - 1
        gradients += chains * search.steps + search.polish
    # The clean pass; rays along slopes, noise and its negative; then bisection and verification.
    rays = 3 * _RAYS * _LENGTHS
    return gradients, 1 + rays + norms * (_GRID - 1 + _BISECTIONS + _PUSHES)


@dataclass(frozen=True, slots=True)
class _Linear:
    """The margins of each image's next classes, linearised at the image.

    Attributes:
        targets: the classes j (images, k).
        margin: z_y - z_j (images, k).
        slope: slopes of z_j - z_y (images, k, d), on the device.
    """

    targets: Ints
    margin: Floats
    slope: Tensor


class _Sloped(NamedTuple):
    """The values and gradients at some points.

    Attributes:
        margin: z_y - z_j (rows,).
        flipped: whether the class is not y (rows,).
        nearest_class: the class with the largest other logit (rows,).
        w: the gradient of z_j - z_y (rows, d), on the device.
        measured: :meth:`FeasibleSet.measured` (rows, m).
    """

    margin: Floats
    flipped: NDArray[np.bool_]
    nearest_class: Ints
    w: Tensor
    measured: Floats


class _Passes:
    """Passes of the model at perturbed images.

    Every flip is offered to all searches. No call has two rows of an image.
    """

    def __init__(
        self,
        logits: Logits,
        slopes: Slopes,
        x: Tensor,
        y: Tensor,
        clipped: bool,
        searchers: Sequence[BoundarySearch],
    ) -> None:
        self._logits = logits
        self._slopes = slopes
        self._clipped = clipped
        self._searchers = searchers
        self.x = x
        self.flat = x.flatten(1)
        self.y: Ints = y.cpu().numpy()
        self.all_images = np.arange(len(x))
        self.gradients, self.forwards, self.lost = np.zeros((3, len(x)), dtype=np.int64)

    def placed(self, numbers: Ints | Floats) -> Tensor:
        """Copy numbers from the host to the device without blocking."""
        return torch.from_numpy(numbers).to(self.x.device, non_blocking=True)

    def classify_images(self) -> None:
        """Classify the images themselves; ``right`` are the images with class y."""
        logits = self._plain_logits(self.all_images, torch.zeros_like(self.flat))
        self._clean = logits
        self.right = np.flatnonzero(self._labels(self.all_images, logits) == self.y)

    def linearised(self, candidates: int) -> _Linear:
        """The margins of the classes with the largest other logits, at a gradient each."""
        others = self._clean.copy()
        others[self.all_images, self.y] = -np.inf
        number = min(candidates, others.shape[1] - 1)
        targets = (-others).argsort(axis=1, kind="stable")[:, :number]
        margin = np.zeros(targets.shape)
        slope = self.flat.new_zeros(*targets.shape, self.flat.shape[1])
        rows = self.right
        at = self.placed(rows)
        # Images of another class than y are flips already, and need no gradient.
        for k in range(targets.shape[1] if len(rows) else 0):
            clean = torch.zeros_like(self.flat[at])
            sloped = self.sloped(rows, clean, targets[rows, k])
            margin[rows, k] = sloped.margin
            slope[:, k].index_copy_(0, at, sloped.w)
        return _Linear(targets, margin, slope)

    def sloped(
        self, image: Ints, d: Tensor, target: Ints, feasible: FeasibleSet | None = None
    ) -> _Sloped:
        """A gradient at each point, with its measures in the feasible set."""
        self.gradients[image] += 1
        at, to = self.placed(np.stack([image, target])).unbind()
        x, pixels = self._pixels(at, d)
        logits, gradient = self._slopes(at, pixels, to)
        w = gradient.flatten(1).nan_to_num(0.0, 0.0, 0.0)
        sums = [] if feasible is None else feasible.measured(w, d)
        z, measured = self._to_host(image, d, x, pixels, logits, sums)
        rows = np.arange(len(image))
        own = self.y[image]
        # Logits that are not finite give a margin of NaN; the chain then ends.
        with np.errstate(invalid="ignore"):
            margin = z[rows, own] - z[rows, target]
        flipped = self._labels(image, z) != own
        z[rows, own] = -np.inf
        return _Sloped(
            margin=margin,
            flipped=flipped,
            nearest_class=z.argmax(1),
            w=w,
            measured=measured,
        )

    def cast_rays(self, image: Ints, linear: _Linear, uniforms: Sequence[Tensor]) -> None:
        """Try rays along the signs of the slopes at the image, of noise and of its negative.

        Steps are up to 1 in every pixel.

        Args:
            image: indices of the images (n,).
            linear: the slopes.
            uniforms: noise on [0, 1] for all images (images, *shape).
        """
        at = self.placed(image)
        # Centred, so that signs of both kinds are as likely.
        noise = [uniform[at].flatten(1).to(self.flat.dtype) - 0.5 for uniform in uniforms]
        slopes = linear.slope[at, :_RAYS].unbind(1)
        opposite = [-direction for direction in noise]
        for ray in [*slopes, *noise, *opposite]:
            for halvings in range(_LENGTHS):
                x, pixels = self._pixels(at, ray.sign() / 2**halvings)
                self.flips(image, (pixels - x).flatten(1))

    def flips(self, image: Ints, d: Tensor) -> NDArray[np.bool_]:
        """Whether a plain pass gives another class (rows,); records nearer flips."""
        logits = self._plain_logits(image, d)
        flipped: NDArray[np.bool_] = self._labels(image, logits) != self.y[image]
        return flipped

    def label(self, image: Ints, d: Tensor) -> Ints:
        """The class in a plain pass (rows,); records no flips."""
        self.forwards[image] += 1
        at = self.placed(image)
        _, pixels = self._pixels(at, d)
        logits = self._logits(at, pixels).double().cpu().numpy()
        return self._counted_labels(image, logits)

    def pixels(self, d: Tensor) -> Tensor:
        """All images, perturbed (images, *shape), and exactly within [0, 1] if required."""
        return self._boxed(self.x + d.view_as(self.x))

    def _pixels(self, at: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
        """Some images without and with their perturbation (rows, *shape)."""
        x = self.x[at]
        return x, self._boxed(x + d.view_as(x))

    def _boxed(self, pixels: Tensor) -> Tensor:
        """The pixels within [0, 1] if required."""
        return pixels.clamp(0.0, 1.0) if self._clipped else pixels

    def _labels(self, image: Ints, logits: Floats) -> Ints:
        """The classes (rows,); y if a logit is not finite, so that it is no flip."""
        finite = np.isfinite(logits).all(1)
        return np.where(finite, logits.argmax(1), self.y[image])

    def _counted_labels(self, image: Ints, logits: Floats) -> Ints:
        """The classes (rows,), counting the rows whose logits are not finite."""
        self.lost[image] += ~np.isfinite(logits).all(1)
        return self._labels(image, logits)

    def _plain_logits(self, image: Ints, d: Tensor) -> Floats:
        """The logits of a plain pass (rows, classes)."""
        self.forwards[image] += 1
        at = self.placed(image)
        x, pixels = self._pixels(at, d)
        return self._to_host(image, d, x, pixels, self._logits(at, pixels))[0]

    def _to_host(
        self,
        image: Ints,
        d: Tensor,
        x: Tensor,
        pixels: Tensor,
        logits: Tensor,
        sums: Sequence[Tensor] = (),
    ) -> tuple[Floats, Floats]:
        """Copy logits and further sums (rows,) to the host, and let every search record nearer
        flips."""
        # The norm is of the change after rounding to pixels: that is the flip of a real image.
        added = (pixels.double() - x.double()).flatten(1)
        sizes = [size(added, searcher.norm) for searcher in self._searchers]
        # One table, so that the host waits for the device once.
        measures = torch.stack([*sizes, *sums], 1)
        table = torch.cat([logits.double(), measures], 1).cpu().numpy()
        classes = logits.shape[1]
        z, norms, further = np.split(table, [classes, classes + len(sizes)], 1)
        label = self._counted_labels(image, z)
        for searcher, radius in zip(self._searchers, norms.T, strict=True):
            searcher.record(image, d, radius, label)
        return z, further


class BoundarySearch:
    """The search in a norm for the best flip of each image.

    Attributes:
        norm: the norm.
        radius: radius of the best flips (images,); infinite without a flip.
    """

    def __init__(self, passes: _Passes, search: Search) -> None:
        self._passes = passes
        self._search = search
        self.norm = search.norm
        flat = passes.flat
        self._feasible = FeasibleSet(search.norm)
        if search.clipped:
            self._feasible = FeasibleSet(search.norm, -flat, 1 - flat)
        self._best = torch.zeros_like(flat)
        self.radius = np.full(len(flat), np.inf)
        self._label = passes.y.copy()

    def record(self, image: Ints, d: Tensor, radius: Floats, label: Ints) -> None:
        """Record the flips that are nearer than the best flip of their image.

        Args:
            image, d, label: image, perturbation and class of each row.
            radius: norm of the perturbation after rounding to pixels (rows,).
        """
        flipped = label != self._passes.y[image]
        rows = np.flatnonzero(flipped & (radius < self.radius[image]))
        if not len(rows):
            return
        where = image[rows]
        self.radius[where] = radius[rows]
        self._label[where] = label[rows]
        to, nearer = self._passes.placed(np.stack([where, rows])).unbind()
        self._best.index_copy_(0, to, d[nearer])

    def descend(self, linear: _Linear) -> None:
        """Run chains from the nearest linearised boundaries.

        Rank their classes by the radius reached, before all other classes.
        """
        feasible = self._feasible
        passes = self._passes
        first = min(self._search.targets, linear.targets.shape[1])
        needed = passes.placed(linear.margin * (1 + _BEYOND))
        starts = [
            feasible.nearest(w, m)
            for w, m in zip(linear.slope.unbind(1), needed.unbind(1), strict=True)
        ]
        points = torch.stack(starts, 1)
        distances = [size(point, self.norm) for point in points.unbind(1)]
        away = torch.stack(distances, 1)
        # A slope of 0 gives the image itself, at distance 0: such classes come last instead.
        away = torch.where((linear.slope != 0).any(2), away, torch.inf)
        order = away.cpu().numpy().argsort(axis=1, kind="stable")
        targets = np.take_along_axis(linear.targets, order, 1)
        reached = np.empty((len(targets), first))
        for chain in range(first):
            place = passes.placed(order[:, chain].copy())
            start = points[passes.placed(passes.all_images), place]
            reached[:, chain] = self.run_chains(
                active=passes.right,
                target=targets[:, chain],
                d=start,
                eta=_FIRST,
                steps=self._search.steps,
            )
        best = reached.argsort(axis=1, kind="stable")
        ranked = np.take_along_axis(targets, best, 1)
        self._nearest = np.concatenate([ranked, targets[:, first:]], 1)

    def restart(self, uniforms: Tensor, number: int) -> None:
        """Run a chain from noise, 1 to 10 times as far out as the best flip.

        The restarts go through the classes in the order of :meth:`descend`.
        """
        noise = 2 * uniforms.flatten(1).to(self._best.dtype) - 1
        # Without a flip so far the noise doubles with each restart. An l2 norm grows with the root
        # of the number of pixels.
        pixels = 1.0 if self.norm == "linf" else math.sqrt(noise.shape[1])
        blind = _BLIND * 2.0**number * pixels
        spread = _SPREADS[number % len(_SPREADS)]
        wanted = np.where(np.isfinite(self.radius), self.radius * spread, blind)
        radius = self._passes.placed(np.minimum(wanted, self._search.cap))
        length = size(noise, self.norm).clamp_min(TINY)
        scale = (radius / length).to(noise.dtype)
        start = self._feasible.boxed(noise * scale[:, None])
        target = self._nearest[:, number % self._nearest.shape[1]]
        self.run_chains(
            active=self._passes.right,
            target=target,
            d=start,
            eta=_FIRST,
            steps=self._search.steps,
        )

    def start_from(self, other: BoundarySearch) -> None:
        """Run a chain from the best flip in another norm."""
        self._slide_from(other, self._search.steps)

    def _slide_from(self, other: BoundarySearch, steps: int) -> None:
        """Run a chain of short steps from the best flips of a search, this one or another."""
        self.run_chains(
            active=other._flipped(),
            target=other._label,
            d=other._best,
            eta=_POLISH,
            steps=steps,
        )

    def run_chains(self, active: Ints, target: Ints, d: Tensor, eta: float, steps: int) -> Floats:
        """Run a chain for each active image. The host waits for the device once per step.

        Args:
            active: the images with a chain.
            target: the class of the first gradient of each image (images,).
            d: starting perturbations (images, d).
            eta: length of the first step, relative to the radius.
            steps: gradients of each chain.

        Returns:
            The radius of the smallest flip of each chain (images,); infinite without a flip.
        """
        reached = np.full(len(target), np.inf)
        d = d[self._passes.placed(active)]
        target = target[active]
        feasible = self._feasible.for_rows(self._passes.placed(active))
        for step in range(steps):
            if not len(active):
                break
            sloped = self._passes.sloped(active, d, target, feasible)
            radius = sloped.measured[:, 0]
            best = reached[active]
            reached[active] = np.where(sloped.flipped, np.minimum(best, radius), best)
            # Where the last step would lead is not computed: no gradient would follow.
            if step == steps - 1:
                break
            # A cosine from eta to _LAST eta.
            fall = 1 + math.cos(math.pi * step / steps)
            length = _LAST * eta + (1 - _LAST) * eta * fall / 2
            radius, settled = self._next_radius(sloped, target)
            going = np.flatnonzero(~settled & np.isfinite(radius))
            w = sloped.w
            unit = feasible.unit(sloped.measured)
            target = sloped.nearest_class
            active = active[going]
            # Chains that have ended leave the batch.
            if len(going) < len(radius):
                stay = self._passes.placed(going)
                d = d[stay]
                w = w[stay]
                feasible = feasible.for_rows(stay)
                radius = radius[going]
                unit = unit[going]
                target = target[going]
            numbers = np.stack([unit, length * radius, radius])
            scale, far, new_size = self._passes.placed(numbers).unbind()
            direction = feasible.steepest(w, d, scale)
            ascended = d + direction * far.to(d.dtype)[:, None]
            d = feasible.onto_ball(ascended, new_size)
        return reached

    def _next_radius(self, sloped: _Sloped, target: Ints) -> tuple[Floats, NDArray[np.bool_]]:
        """The next radius of each chain (rows,), and whether the chain has settled (rows,).

        A settled chain is at the boundary, at the point that is nearest as far as its slope tells.
        """
        radius, along, dual = sloped.measured[:, :3].T
        with np.errstate(invalid="ignore", over="ignore"):
            # Newton's step to the zero of the linearised margin along the ray.
            newton = sloped.margin / np.maximum(self._feasible.rate(sloped.measured), TINY)
            most = _CHANGE * radius
            change = np.clip(newton + _BEYOND * radius, -most, most)
            # The distance from the image to the linearised boundary in any direction, DeepFool's
            # step: (z_y - z_j + w . d) / |w| in the dual norm.
            nearest = (sloped.margin + along) / np.maximum(dual, TINY)
            close = np.abs(newton) <= _NEAR * radius
            on_boundary = sloped.flipped & (sloped.nearest_class == target) & close
            settled = on_boundary & ((radius + newton) * (1 - _SETTLED) <= nearest)
            return np.minimum(radius + change, self._search.cap), settled

    def polish(self) -> None:
        """Slide along the boundary from the best point."""
        self._slide_from(self, self._search.polish)

    def bisect(self) -> None:
        """Bisect between the image and its best flip, before the first flip on a coarse grid."""
        image = self._flipped()
        if not len(image):
            return
        whole = self._best[self._passes.placed(image)]
        # The part of the best perturbation at which the class is known to flip.
        upper = np.ones(len(image))
        # A ray may cross other classes on its way, so the class need not flip only once.
        for number in range(1, _GRID):
            part = np.full(len(image), number / _GRID)
            flips = self._flips_at(image, whole, part)
            upper = np.where((upper == 1) & flips, part, upper)
        lower = upper - 1 / _GRID
        for _ in range(_BISECTIONS):
            middle = (lower + upper) / 2
            flips = self._flips_at(image, whole, middle)
            lower = np.where(flips, lower, middle)
            upper = np.where(flips, middle, upper)

    def verify(self) -> None:
        """Verify every best flip in a separate pass, and move it outwards a little if needed."""
        passes = self._passes
        image = self._flipped()
        for number in range(_PUSHES):
            if not len(image):
                break
            at = passes.placed(image)
            best = self._best[at]
            # A pass with other images, or without gradients, may round differently. The pushes
            # double up to 1 + 1e-6 * 2^11 = 1.002.
            if number:
                best *= 1 + 1e-6 * 2.0**number
                self._best.index_copy_(0, at, best)
            label = passes.label(image, best)
            self._label[image] = label
            image = image[label == passes.y[image]]
        self.radius[image] = np.inf

    def result(self) -> Flips:
        """The flips, once all searches have verified them."""
        passes = self._passes
        pixels = passes.pixels(self._best)
        added = (pixels.double() - passes.x.double()).flatten(1)
        radius = size(added, self.norm)
        # One table, so that the device gets the numbers of all images in one copy.
        counts = [passes.gradients, passes.forwards, passes.lost]
        table = np.stack([np.isfinite(self.radius), self._label, passes.y, *counts])
        finite, label, y, gradients, forwards, lost = passes.placed(table).unbind()
        near = (finite > 0) & (radius <= self._search.cap)
        near_pixels = near.view(-1, *[1] * (pixels.ndim - 1))
        return Flips(
            pixels=torch.where(near_pixels, pixels, passes.x),
            radius=torch.where(near, radius, torch.inf),
            label=torch.where(near, label, y),
            gradients=gradients,
            forwards=forwards,
            lost=lost,
        )

    def _flipped(self) -> Ints:
        """The images with a flip away from the image itself."""
        return np.flatnonzero((self.radius > 0) & np.isfinite(self.radius))

    def _flips_at(self, image: Ints, whole: Tensor, part: Floats) -> NDArray[np.bool_]:
        """Whether a part of each perturbation flips the class (rows,)."""
        scale = self._passes.placed(part).to(whole.dtype)[:, None]
        return self._passes.flips(image, whole * scale)
