"""log Z_q by two long computations that share nothing with `qnorm_path` but the network:
sequential Monte Carlo, and importance sampling from tilts that are fitted again and again.

Both are without bias for E[l^q], so neither is too large but by chance: where they differ, the
larger one has found what the other missed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from robaudit.noise.noise import Noise

_KEEPS = 0.9  # of the effective sample size, from one temperature to the next
_MOVES = 3
_LEAPS = 5
_TARGET = 0.8  # acceptance that the angle of a trajectory adapts to


@dataclass(frozen=True, slots=True)
class Problem:
    """E[l(z)^q] over z ~ N(0, I) for some images.

    Attributes:
        logits: z (images, n, d) -> (images, n, classes), float64.
        target: the class that the loss is against (images,), int64.
        d: number of variables.
    """

    logits: Callable[[Tensor], Tensor]
    target: Tensor
    d: int

    @property
    def images(self) -> int:
        """Number of images."""
        return len(self.target)

    def log_loss(self, z: Tensor) -> Tensor:
        """log l (images, n), float64."""
        with torch.no_grad():
            return log_loss(self.logits(z), self.target)

    def slopes(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """log l (images, n), float64, and its gradient, of the shape and type of z."""
        at = z.detach().clone().requires_grad_(True)
        values = log_loss(self.logits(at), self.target)
        (slope,) = torch.autograd.grad(values.sum(), at)
        return values.detach(), slope.nan_to_num(0.0)

    def first(self, images: int) -> Problem:
        """The problem of one image, by its number."""
        rows = slice(images, images + 1)

        def logits(z: Tensor) -> Tensor:
            return self.logits(z.expand(self.images, -1, -1))[rows]

        return Problem(logits, self.target[rows], self.d)


def log_loss(logits: Tensor, target: Tensor) -> Tensor:
    """log of the cross-entropy (images, n) of logits (images, n, classes)."""
    places = target[:, None, None].expand(*logits.shape[:2], 1)
    others = (logits - logits.gather(2, places)).scatter(2, places, -math.inf)
    margin = torch.logsumexp(others, 2)
    loss = nn.functional.softplus(margin)
    # log softplus(m) is m to 13 digits below -30
    return torch.where(margin < -30, margin, loss.clamp_min(1e-300).log())


def row_space(
    first: nn.Linear, rest: nn.Module, x: Tensor, target: Tensor, sigma: float
) -> Problem:
    """Gaussian noise before a linear layer: only its part in the row space of the weights matters,
    which has as many dimensions as the layer has outputs."""
    weights = first.weight.detach().double()
    rest = rest.double()
    clean = first.double()(x.flatten(1).double()).detach()
    covariance = sigma**2 * weights @ weights.T
    ridge = 1e-12 * torch.eye(len(weights), dtype=torch.float64)
    root = torch.linalg.cholesky(covariance + ridge)

    def logits(z: Tensor) -> Tensor:
        hidden = clean[:, None] + z.double() @ root.T
        result: Tensor = rest(hidden.flatten(0, 1)).unflatten(0, hidden.shape[:2])
        return result

    return Problem(logits, target, len(weights))


def in_pixels(
    network: Callable[[Tensor], Tensor], x: Tensor, target: Tensor, noise: Noise, level: float
) -> Problem:
    """Any noise and network, in the noise's own variables."""
    shape = noise.latent_shape((x.shape[1], x.shape[2], x.shape[3]))

    def logits(z: Tensor) -> Tensor:
        n = z.shape[1]
        pixels = []
        for image, variables in zip(x.split(1), z, strict=True):
            draws = variables.to(image.dtype).unflatten(1, shape)
            noisy = noise.noisy(image, draws, level, ids=["image"])
            pixels.append(noisy)
        outputs: Tensor = network(torch.cat(pixels)).double()
        shaped: Tensor = outputs.unflatten(0, (len(x), n))
        return shaped

    return Problem(logits, target, math.prod(shape))


@dataclass(frozen=True, slots=True)
class Box:
    """Noise that is uniform in a box: x + eps u, u in [-1, 1]^d.

    Attributes:
        network: pixels -> logits.
        x: images (images, channels, height, width).
        target: the class that the loss is against (images,), int64.
        eps: half of the width.
    """

    network: Callable[[Tensor], Tensor]
    x: Tensor
    target: Tensor
    eps: float

    def logits(self, u: Tensor) -> Tensor:
        """u (images, n, d) -> (images, n, classes), float64."""
        pixels = self.x[:, None] + self.eps * u.to(self.x.dtype).unflatten(2, self.x.shape[1:])
        outputs: Tensor = self.network(pixels.flatten(0, 1)).double()
        shaped: Tensor = outputs.unflatten(0, u.shape[:2])
        return shaped

    @property
    def in_normals(self) -> Problem:
        """The same in normal variables z, u = 2 Phi(z) - 1."""
        return Problem(
            lambda z: self.logits(torch.erf(z * math.sqrt(0.5))), self.target, self.x[0].numel()
        )


def box_importance(box: Box, q: float, copies: int, seed: int) -> tuple[Tensor, Tensor]:
    """log Z_q and the effective sample size (images,) each, by copies of a mixture of the noise and
    of its exponential tilts towards every other class: densities prop. to exp(a . u)."""
    generator = torch.Generator().manual_seed(seed)
    images = len(box.x)

    def drawn(tilt: Tensor, probability: Tensor) -> Tensor:
        """The quantiles of the tilts: of e^(a u) the integral from -1 to u, over that to 1."""
        a = torch.where(tilt.abs() < 1e-6, 1e-6, tilt)
        toward = torch.where(a > 0, 1 - probability, probability)
        up = 1 + torch.log1p(toward * torch.expm1(-2 * a.abs())) / a.abs()
        return up.clamp(-1, 1) * a.sign()

    def log_mass(tilt: Tensor) -> Tensor:
        """log E[exp(a . u)] = sum log(sinh a / a)."""
        a = tilt.abs().clamp_min(1e-6)
        return (a + torch.log(-torch.expm1(-2 * a) / (2 * a))).sum(-1)

    tilts = _class_tilts(
        box.logits, drawn, box.target, box.x[0].numel(), q, generator, uniform=True
    )
    found = []
    sizes = []
    for image, tilt in enumerate(tilts):
        own = Box(box.network, box.x[image : image + 1], box.target[image : image + 1], box.eps)
        parts = torch.cat([torch.zeros_like(tilt[:1]), tilt])
        n = copies // len(parts)
        uniform = torch.rand(len(parts), n, tilt.shape[1], generator=generator).double()
        u = drawn(parts[:, None], uniform).flatten(0, 1)
        with torch.no_grad():
            pieces = [own.logits(piece[None])[0] for piece in u.split(10_000)]
        values = log_loss(torch.cat(pieces)[None], own.target)[0]
        log_density = torch.logsumexp(u @ parts.T - log_mass(parts), 1) - math.log(len(parts))
        log_weight = q * values - log_density
        found.append(float(torch.logsumexp(log_weight, 0)) / q - math.log(len(u)) / q)
        sizes.append(float(1 / torch.softmax(log_weight, 0).square().sum()))
    assert len(found) == images
    return torch.tensor(found, dtype=torch.float64), torch.tensor(sizes, dtype=torch.float64)


def sequential(
    problem: Problem,
    orders: Sequence[float],
    particles: int,
    seed: int,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """log Z_q (orders, images) by sequential Monte Carlo with Hamiltonian moves.

    Source: Del Moral, Doucet and Jasra 2006; temperatures by Zhou, Johansen and Aston 2016.
    """
    generator = torch.Generator().manual_seed(seed)
    images = problem.images

    def normals(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    z = normals(images, particles, problem.d)
    values, slope = problem.slopes(z)
    t = torch.zeros(images, dtype=torch.float64)
    log_mass = torch.zeros(images, dtype=torch.float64)
    log_angle = torch.zeros(images, dtype=torch.float64)
    norms = []
    for q in orders:
        while bool((t < q).any()):
            step = _temperature_step(values, q - t)
            log_weight = step[:, None] * values
            log_mass += torch.logsumexp(log_weight, 1) - math.log(particles)
            # the last step ends exactly at q
            t = torch.where(step >= q - t, torch.full_like(t, q), t + step)
            chosen = _resampled(torch.softmax(log_weight, 1), generator)
            places = chosen[..., None].expand(-1, -1, problem.d)
            z = z.gather(1, places)
            slope = slope.gather(1, places)
            values = values.gather(1, chosen)
            for _ in range(_MOVES):
                momentum = normals(images, particles, problem.d)
                new, new_values, new_slope, gained = _trajectory(
                    problem, z, values, slope, momentum, t, log_angle.exp()
                )
                probability = gained.clamp_max(0).exp().nan_to_num(0.0)
                uniform = torch.rand(images, particles, generator=generator, dtype=torch.float64)
                accepted = uniform < probability
                z = torch.where(accepted[..., None], new, z)
                slope = torch.where(accepted[..., None], new_slope, slope)
                values = torch.where(accepted, new_values, values)
                log_angle += 0.3 * (probability.mean(1) - _TARGET)
                log_angle = log_angle.clamp(math.log(1e-3), math.log(math.pi / 2))
        norms.append(log_mass / q)
    return torch.stack(norms)


def _temperature_step(values: Tensor, remaining: Tensor) -> Tensor:
    """The longest step of each image that keeps the effective sample size (images,), at most the
    remaining one."""

    def keeps(step: Tensor) -> Tensor:
        weights = torch.softmax(step[:, None] * values, 1)
        return 1 / weights.square().sum(1) >= _KEEPS * values.shape[1]

    low = torch.zeros_like(remaining)
    high = remaining.clone()
    all_of_it = keeps(high)
    for _ in range(40):
        middle = (low + high) / 2
        enough = keeps(middle)
        low = torch.where(enough, middle, low)
        high = torch.where(enough, high, middle)
    return torch.where(all_of_it, remaining, low)


def _resampled(weights: Tensor, generator: torch.Generator) -> Tensor:
    """Indices of particles, drawn systematically (images, particles)."""
    n = weights.shape[1]
    start = torch.rand(len(weights), 1, generator=generator, dtype=torch.float64)
    places = (start + torch.arange(n)) / n
    chosen: Tensor = torch.searchsorted(weights.cumsum(1), places).clamp_max(n - 1)
    return chosen


def _trajectory(
    problem: Problem,
    z: Tensor,
    values: Tensor,
    slope: Tensor,
    momentum: Tensor,
    t: Tensor,
    angle: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The end of each trajectory: z, log l, its gradient, and minus the change of the energy."""
    turn = (angle / _LEAPS).to(z.dtype)[:, None, None]
    kick = turn / 2 * t.to(z.dtype)[:, None, None]
    end = z
    end_values = values
    p = momentum + kick * slope
    for leap in range(_LEAPS):
        ahead = turn.cos() * end + turn.sin() * p
        p = turn.cos() * p - turn.sin() * end
        end = ahead
        end_values, slope = problem.slopes(end)
        p = p + (kick if leap == _LEAPS - 1 else 2 * kick) * slope

    def energy(at: Tensor, speed: Tensor, log_l: Tensor) -> Tensor:
        squares = at.double().square().sum(2) + speed.double().square().sum(2)
        return squares / 2 - t[:, None] * log_l

    gained = energy(z, momentum, values) - energy(end, p, end_values)
    return end, end_values, slope, gained


def importance(problem: Problem, q: float, copies: int, seed: int) -> tuple[Tensor, Tensor]:
    """log Z_q and the effective sample size (images,) each, by copies of a mixture: the noise, its
    tilts towards every other class, and normal distributions fitted to the weighted copies.

    Source: Cappe, Guillin, Marin and Robert 2004, Population Monte Carlo.
    """
    generator = torch.Generator().manual_seed(seed)
    tilts = _class_tilts(
        problem.logits, torch.add, problem.target, problem.d, q, generator, uniform=False
    )
    found = []
    sizes = []
    for image in range(problem.images):
        value, ess = _fitted(problem.first(image), q, tilts[image], copies, generator)
        found.append(value / q)
        sizes.append(ess)
    return torch.tensor(found, dtype=torch.float64), torch.tensor(sizes, dtype=torch.float64)


def _class_tilts(
    logits: Callable[[Tensor], Tensor],
    drawn: Callable[[Tensor, Tensor], Tensor],
    target: Tensor,
    d: int,
    q: float,
    generator: torch.Generator,
    *,
    uniform: bool,
) -> Tensor:
    """t = q E[grad log l] over its own tilt, from a search for each other class (images, classes -
    1, d).

    Args:
        logits: of points (images, n, d).
        drawn: points of a tilt, from standard normal numbers, or from probabilities.
        target: (images,).
        d: number of variables.
        q: the order.
        generator: of the numbers.
        uniform: whether ``drawn`` takes probabilities.
    """
    images = len(target)
    with torch.no_grad():
        classes = logits(torch.zeros(images, 1, d, dtype=torch.float64)).shape[2]
    every = torch.arange(classes).expand(images, classes)
    others = every[every != target[:, None]].view(images, classes - 1)
    tilt = torch.zeros(images, classes - 1, d, dtype=torch.float64)
    rounds = 60
    draws = 64
    mean = torch.zeros_like(tilt)
    towards = others.repeat_interleave(draws, 1)[..., None]
    own = target[:, None, None].expand(-1, towards.shape[1], 1)
    for number in range(rounds):
        shape = (images, classes - 1, draws // 2, d)
        if uniform:
            half = torch.rand(*shape, generator=generator, dtype=torch.float64)
            pairs = torch.cat([half, 1 - half], 2)
        else:
            half = torch.randn(*shape, generator=generator, dtype=torch.float64)
            pairs = torch.cat([half, -half], 2)
        at = drawn(tilt[:, :, None], pairs).requires_grad_(True)
        outputs = logits(at.flatten(1, 2))
        if number < rounds // 2:
            # towards the class, whatever the others do
            margin = (outputs.gather(2, towards) - outputs.gather(2, own))[..., 0]
            loss = nn.functional.softplus(margin).clamp_min(1e-300).log()
            values = torch.where(margin < -30, margin, loss)
        else:
            values = log_loss(outputs, target)
        (slope,) = torch.autograd.grad(values.sum(), at)
        step = q * slope.mean(2) - tilt
        gain = 1 / ((number % (rounds // 2)) / 3 + 1.5)
        length = step.norm(dim=2, keepdim=True) * gain
        longest = 2 + 0.3 * tilt.norm(dim=2, keepdim=True)
        tilt = tilt + gain * step * (longest / length.clamp_min(1e-30)).clamp_max(1.0)
        if number >= rounds * 3 // 4:
            mean += tilt / (rounds - rounds * 3 // 4)
    return mean.detach()


def _fitted(
    problem: Problem, q: float, tilts: Tensor, copies: int, generator: torch.Generator
) -> tuple[float, float]:
    """log E[l^q] and the effective sample size for one image."""
    d = problem.d
    unit = torch.eye(d, dtype=torch.float64)
    number = len(tilts)
    means = list(tilts)
    covariances = [unit] * number
    shares = torch.full((number,), 1 / number, dtype=torch.float64)
    fits = 3
    for fit in range(fits + 1):
        n = copies if fit == fits else copies // 4
        # the noise itself, its tilts, and the fitted parts
        centres = [torch.zeros(d, dtype=torch.float64), *tilts, *means]
        spreads = [unit] * (1 + number) + covariances
        weights = [0.1, *[0.3 / number] * number, *(0.6 * shares).tolist()]
        sizes = [int(weight * n) + 20 for weight in weights]
        roots = [torch.linalg.cholesky(spread) for spread in spreads]
        drawn = []
        for centre, root, size in zip(centres, roots, sizes, strict=True):
            e = torch.randn(size, d, generator=generator, dtype=torch.float64)
            drawn.append(centre + e @ root.T)
        z = torch.cat(drawn)
        log_parts = []
        for centre, root, size in zip(centres, roots, sizes, strict=True):
            from_centre = torch.linalg.solve_triangular(root, (z - centre).T, upper=False)
            log_density = from_centre.square().sum(0) / -2 - root.diagonal().log().sum()
            log_parts.append(log_density + math.log(size / len(z)))
        parts = torch.stack(log_parts)
        log_weight = q * problem.log_loss(z[None])[0] - z.square().sum(1) / 2
        log_weight -= torch.logsumexp(parts, 0)
        weight = torch.softmax(log_weight, 0)
        # how much of each copy belongs to each class: to its tilt, or to what was fitted to it
        belongs = torch.softmax(parts[1:], 0) * weight
        belongs = belongs[:number] + belongs[number:]
        for k, mine in enumerate(belongs):
            total = mine.sum()
            enough = float(total) ** 2 > 4 * d * float(mine.square().sum())
            if float(total) > 1e-5 and enough:
                means[k] = (mine[:, None] * z).sum(0) / total
                around = z - means[k]
                spread = (mine[:, None] * around).T @ around / total
                covariances[k] = 0.9 * spread + 0.1 * unit
        shares = 0.9 * belongs.sum(1) / belongs.sum() + 0.1 / number
    value = float(torch.logsumexp(log_weight, 0)) - math.log(len(z))
    return value, float(1 / weight.square().sum())
