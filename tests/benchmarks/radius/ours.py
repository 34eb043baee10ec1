"""robaudit's own attack as a method of the comparison."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from robaudit.numerics.minimal_norm import Logits, Search, Slopes, nearest_flips
from tests.benchmarks.radius.libraries import Norm

_ROWS = 64
_DEFAULT = Search("l2")


@dataclass(frozen=True, slots=True)
class Ours:
    """The search with its defaults, or with these numbers of chains and steps.

    Attributes:
        norm: of the perturbation.
        targets, restarts, steps, polish: of :class:`Search`.
    """

    norm: Norm
    targets: int = _DEFAULT.targets
    restarts: int = _DEFAULT.restarts
    steps: int = _DEFAULT.steps
    polish: int = _DEFAULT.polish

    @property
    def label(self) -> str:
        """With all that changes its values."""
        return f"robaudit targets={self.targets} restarts={self.restarts} steps={self.steps} polish={self.polish}"

    def run(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The points that it found (n, channels, height, width)."""
        options = {"targets": self.targets, "restarts": self.restarts, "steps": self.steps, "polish": self.polish}
        return nearest_flips(*passes(model, y), x, y, Search(self.norm, clipped=True, **options), Seeded(x)).pixels


def budgets(norm: Norm) -> list[Ours]:
    """About 60, 100, 200, 300 and 500 gradients."""
    return [Ours(norm, 2, 0, 15, 20), Ours(norm, 1, 3, 15, 30), Ours(norm), Ours(norm, 2, 6, 18, 134), Ours(norm, 3, 18, 20, 70)]


@dataclass(frozen=True, slots=True)
class Seeded:
    """Uniform variables of every image from its own place in the list."""

    x: Tensor

    def uniforms(self, restart: int) -> Tensor:
        """(images, *shape)."""
        shape = self.x.shape[1:]
        return torch.stack([torch.rand(shape, generator=torch.Generator().manual_seed(10_000 * i + restart)) for i in range(len(self.x))])


def passes(model: nn.Module, y: Tensor) -> tuple[Logits, Slopes]:
    """The model's passes, with and without gradients."""

    def logits(_: Tensor, pixels: Tensor) -> Tensor:
        with torch.inference_mode():
            return torch.cat([model(part) for part in pixels.split(_ROWS)]).clone()

    def slopes(image: Tensor, pixels: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        found = [_differentiated(model, *parts) for parts in zip(*(all_.split(_ROWS) for all_ in (pixels, y[image], other)), strict=True)]
        return torch.cat([z for z, _ in found]), torch.cat([w for _, w in found])

    return logits, slopes


def _differentiated(model: nn.Module, pixels: Tensor, own: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    points = pixels.clone().requires_grad_(True)
    z = model(points)
    (w,) = torch.autograd.grad((z.gather(1, other[:, None]) - z.gather(1, own[:, None])).sum(), points)
    return z.detach(), w
