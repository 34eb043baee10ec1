"""Design points (where failure is likeliest) and importance sampling around them, for any score."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.rowwise import product

Slope = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Points (rows, d) -> limit state g (rows,), failure at g <= 0, and its gradients (rows, d)."""

DEFENSIVE = 0.1
"""Share of draws from N(0, I) itself: no weight exceeds 1 / .1."""

_LEAST_WEIGHT = 0.05
_ALIKE = 0.9
_GROUP_VALUES, _ROWS = 2**20, 64  # most values and rows in float64 at once
_FAR = 37.0  # beyond it, Phi(-beta) is not a normal float64


def search(slope: Slope, start: Tensor, steps: int) -> Tensor:
    """Points of least norm where g = 0, by Hasofer and Lind's iteration u <- (g'u - g) g' / |g'|^2, from each starting point.

    The second half of the steps is damped, as the iteration may run in circles about the kinks of a ReLU network. Its result
    is only a centre for sampling: importance sampling is unbiased around any.

    Args:
        slope: limit state and gradients.
        start: (rows, d).
        steps: gradient evaluations.

    Returns:
        (rows, d); NaN where the gradient vanished or nothing finite was found.

    Source: Rackwitz and Fiessler 1978.
    """
    u = start.clone()
    for step in range(steps):
        g, slopes = slope(u)
        squared, along = dot(slopes, slopes), dot(slopes, u)
        new = slopes.mul_(((along - g.double()) / squared)[:, None].to(u.dtype))
        u = new if 2 * step < steps else u.add_(new).mul_(0.5)
    return torch.where(u.isfinite().all(1, keepdim=True), u, math.nan)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """a_i . b_i of every row, in float64: (rows, d) and (rows, d) -> (rows,)."""
    parts = zip(a.split(_ROWS), b.split(_ROWS), strict=True)
    return torch.cat([product(x.double().unsqueeze(1), y.double().unsqueeze(2)).flatten() for x, y in parts])


@dataclass(frozen=True, slots=True)
class Mixture:
    """.1 N(0, I) + .9 sum_k w_k N(u_k, I), from which draws are taken in fixed numbers.

    Attributes:
        points: u_k (k, d), float64.
        counts: draws of N(0, I), then of each point (k + 1,).
    """

    points: Tensor
    counts: tuple[int, ...]

    @property
    def draws(self) -> int:
        """All draws."""
        return sum(self.counts)

    def log_ratio(self, u: Tensor) -> Tensor:
        """log of phi(u) / q(u), the weight of each point (rows, d): (rows,), float64; at most log 10.

        q / phi = a_0 + sum_k a_k exp(u . u_k - |u_k|^2 / 2), a the shares of draws.
        """
        shares = torch.tensor(self.counts, dtype=torch.float64, device=u.device) / self.draws
        cross = product(u.double().unsqueeze(0), self.points.T.contiguous().unsqueeze(0))[0]
        exponents = cross - 0.5 * dot(self.points, self.points) + shares[1:].log()
        parts = torch.cat([shares[:1].log().expand(len(u), 1), exponents], dim=1)
        top = parts.max(1, keepdim=True).values
        return -(top[:, 0] + (parts - top).exp().cumsum(1)[:, -1].log())


def mixture(points: Tensor, draws: int) -> Mixture:
    """The mixture at these points; those that are not finite, too far out or similar to a nearer one are left out.

    w_k is proportional to Phi(-|u_k|), which is what FORM takes for the probability beyond u_k, but at least .05 of the largest.

    Args:
        points: (k, d), in any order; nearest first afterwards.
        draws: in all; a tenth (at least one) is from N(0, I), and each point has one or more.
    """
    points = points.double()
    points = points[points.isfinite().all(1)]
    beta = dot(points, points).sqrt()
    chosen: list[int] = []
    for i in beta.argsort(stable=True).tolist():
        near = [j for j in chosen if float(dot(points[i : i + 1], points[j : j + 1])) > _ALIKE * float(beta[i] * beta[j])]
        if float(beta[i]) < _FAR and not near:
            chosen.append(i)
    chosen = chosen[: max(0, draws // 2)]
    points, beta = points[chosen], beta[chosen]
    first = max(1, math.ceil(DEFENSIVE * draws)) if chosen else draws
    counts = [first]
    if chosen:
        log_p = normal_cdf(-beta).clamp_min(1e-300).log()
        weights = (log_p - log_p.max()).exp().clamp_min(_LEAST_WEIGHT)
        ends = (weights.cumsum(0) / weights.cumsum(0)[-1] * (draws - first)).round().long().tolist()
        counts += [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    return Mixture(points, tuple(counts))


@dataclass(frozen=True, slots=True)
class Weighted:
    """Estimate from a weighted sample.

    Attributes:
        p: the estimate.
        std_error: of p.
        ess: effective number of failing draws, (sum w)^2 / sum w^2 over those that fail.
        failed: draws that fail.
        labels: their weights, by label.
    """

    p: float
    std_error: float
    ess: float
    failed: int
    labels: dict[int, float]


def weighted(log_weights: Tensor, fails: Tensor, labels: Tensor) -> Weighted:
    """p = mean of w 1[fails], with its standard error as if the draws were independent draws of the mixture (fixed numbers vary less).

    Args:
        log_weights, fails, labels: of all draws (n,).
    """
    n = len(fails)
    where = fails.nonzero()[:, 0].tolist()
    weights = log_weights.exp().tolist()
    found = [weights[i] for i in where]
    total, squares = math.fsum(found), math.fsum(w * w for w in found)
    p = total / n
    error = math.sqrt(max(0.0, squares / n - p * p) / max(1, n - 1))
    names = labels.tolist()
    shares: dict[int, float] = {}
    for i in where:
        shares[names[i]] = shares.get(names[i], 0.0) + weights[i]
    return Weighted(p, error, total * total / squares if squares else 0.0, len(found), shares)


def sample(judge: Callable[[Tensor], tuple[Tensor, Tensor]], draw: Iterable[Tensor], mix: Mixture) -> Weighted:
    """Draw from the mixture, weight each draw and judge it.

    Args:
        judge: points (rows, *shape) -> scores (rows,), failure at >= 0, and labels (rows,).
        draw: standard normal draws in blocks (m, *shape), as many as the mixture has.
        mix: where to draw.

    The weights are computed in groups of draws whose size is a function of d alone.
    """
    component = torch.arange(len(mix.counts)).repeat_interleave(torch.tensor(mix.counts)).to(mix.points.device)
    centres = torch.cat([torch.zeros_like(mix.points[:1]) if len(mix.points) else mix.points.new_zeros(1, mix.points.shape[1]), mix.points])
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    done = 0
    for block in _grouped(draw, max(8, min(1024, _GROUP_VALUES // mix.points.shape[1]))):
        centre = centres[component[done : done + len(block)]].to(block.dtype)
        u = block + centre.view(block.shape)
        scores, labels = judge(u)
        found.append((mix.log_ratio(u.flatten(1)), scores >= 0, labels))
        done += len(block)
    return weighted(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def _grouped(blocks: Iterable[Tensor], size: int) -> Iterator[Tensor]:
    """The same draws in groups of one size; the last may be smaller."""
    waiting: list[Tensor] = []
    held = 0
    for block in blocks:
        rest = block
        while held + len(rest) >= size:
            yield torch.cat([*waiting, rest[: size - held]])
            rest, waiting, held = rest[size - held :], [], 0
        if len(rest):
            waiting.append(rest)
            held += len(rest)
    if waiting:
        yield torch.cat(waiting)


def relative_error_at(log_weights: Tensor, log_p: float, draws: int) -> float:
    """The relative standard error of importance sampling that failing points *from another method* predict.

    The second moment of w 1[fails] under the mixture is that of the failures' weights: E_q[w^2 1] = p E[w | failure]. So
    se / p = sqrt((E[w | failure] / p - 1) / draws), with w at failing particles of splitting. A sample of the mixture that missed a
    region cannot know the weights there; these particles can.

    Args:
        log_weights: at failing points that are distributed like the noise given failure (n,).
        log_p: natural logarithm of the probability.
        draws: of the mixture.
    """
    mean = float(log_weights.exp().cumsum(0)[-1]) / len(log_weights)
    return math.sqrt(max(0.0, mean / math.exp(log_p) - 1) / draws)
