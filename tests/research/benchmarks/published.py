"""The published method, as the papers' scripts compute p_robust, written plainly.

After Han, Srinivas and Lakkaraju: one image at a time, noise by `torch.randn_like`, batches of 256,
the full Jacobian of all logits (vectorised autograd), 1e-5 on the diagonal, and SciPy's normal CDF
point by point.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from scipy.stats import multivariate_normal
from torch import Tensor

from robaudit.numerics.margins import margins, other_classes

BATCH = 256
Logits = Callable[[Tensor], Tensor]


def scipy_cdf(upper: Tensor, correlation: Tensor) -> list[float]:
    """The normal CDF of each problem (k,), (k, k) with the papers' settings."""
    zeros = [0.0] * upper.shape[1]
    return [
        float(
            multivariate_normal.cdf(
                z, zeros, r, maxpts=10_000, abseps=1e-4, releps=1e-4, allow_singular=True
            )
        )
        for z, r in zip(
            upper.double().cpu().numpy(), correlation.double().cpu().numpy(), strict=True
        )
    ]


def monte_carlo(f: Logits, x: Tensor, sigma: float, samples: int) -> list[float]:
    """Share of noisy copies that keep the class."""
    values = []
    with torch.no_grad():
        for image in x:
            predicted = f(image[None]).argmax(1)
            kept = 0
            for start in range(0, samples, BATCH):
                copies = image.expand(min(BATCH, samples - start), *image.shape)
                kept += int(
                    (f(copies + sigma * torch.randn_like(copies)).argmax(1) == predicted).sum()
                )
            values.append(kept / samples)
    return values


def jacobian(f: Logits, x: Tensor) -> Tensor:
    """Gradients of all logits (n, classes, pixels)."""
    rows: Tensor = torch.autograd.functional.jacobian(
        lambda batch: f(batch).sum(0), x, vectorize=True
    )
    return rows.flatten(2).transpose(0, 1)


def taylor(f: Logits, x: Tensor, sigma: float) -> list[float]:
    """The margins' tangent at each image (all images in one batch, as their batched form does)."""
    g, gradients = _margins_and_gradients(f, x, _predicted(f, x))
    return _probability(g, gradients, sigma)


def mmse(f: Logits, x: Tensor, sigma: float, samples: int) -> list[float]:
    """Margins and gradients averaged over noisy copies of each image."""
    fits = []
    for image in x:
        copies = image.expand(samples, *image.shape)
        predicted = _predicted(f, image[None]).expand(samples)
        g, gradients = _margins_and_gradients(
            f, copies + sigma * torch.randn_like(copies), predicted
        )
        fits.append((g.mean(0), gradients.mean(0)))
    g, gradients = (torch.stack(parts) for parts in zip(*fits, strict=True))
    return _probability(g, gradients, sigma)


def _predicted(f: Logits, x: Tensor) -> Tensor:
    with torch.no_grad():
        return f(x).argmax(1)


def _margins_and_gradients(f: Logits, x: Tensor, predicted: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        g = margins(f(x), predicted)
    rows = jacobian(f, x)
    image = torch.arange(len(x), device=x.device)
    return g, rows[image, predicted][:, None] - rows[
        image[:, None], other_classes(predicted, rows.shape[1])
    ]


def _probability(g: Tensor, gradients: Tensor, sigma: float) -> list[float]:
    norms = gradients.norm(dim=2)
    unit = gradients / norms[:, :, None]
    correlation = unit @ unit.transpose(1, 2) + 1e-5 * torch.eye(g.shape[1], device=g.device)
    return scipy_cdf(g / (sigma * norms), correlation)
