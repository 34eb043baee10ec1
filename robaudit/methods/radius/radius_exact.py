"""`radius_exact`: the distance of an image to the nearest boundary of a linear network."""

from __future__ import annotations

import torch
from torch import Tensor

from robaudit.engine.batch import ImageBatch
from robaudit.errors import ModelError
from robaudit.methods.radius.radius_estimator import RadiusEstimator, diameter, results_of
from robaudit.models.graph import Model, record
from robaudit.models.logits import LogitModel
from robaudit.models.operations import is_affine
from robaudit.noise.noise import shape_of
from robaudit.numerics.margins import margin_rounding
from robaudit.quantities import Interval, IntervalKind
from robaudit.results import Result, Searched

_ROWS = 64  # weight differences computed at once
# A linear network's logits may differ from W x + b by rounding: a far larger difference, relative
# to the largest logit, means that the network is not linear.
_FAR = 1e-3
_UNKNOWN = 1e9  # stands for a rounding error of any size


class RadiusExact(RadiusEstimator):
    """min_j (z_y - z_j) / |w_y - w_j| of a network with logits z = W x + b, y the predicted class;
    |.| is the dual norm.

    The dual of l2 is l2, of linf l1. No shorter perturbation changes the class, and some
    perturbation that is longer by any amount does. Linear networks are recognised by the operations
    of one pass: products with fixed weights, sums, means, fixed normalisation, changes of shape.
    Every clean pass is compared with W x + b. The detail ``rounding`` bounds the error from rounded
    logits (:func:`robaudit.numerics.margins.margin_rounding`). It is large if the logits are large
    and their margin is small.

    Source: Giraudon et al., Intrinsic robustness, proposition 3.2, in its exact form for linear
    networks (Moosavi-Dezfooli et al. 2016).
    """

    interval = Interval(IntervalKind.EXACT)
    summary = "the radius of a linear network, in closed form"
    prefer = "wherever the network is linear: it is exact, and takes no search"

    def passes(self, classes: int) -> tuple[int, int]:
        """The clean pass, and a gradient for each class, shared by the images of a chunk."""
        return 1, classes

    def check_model(self, model: LogitModel, image: Tensor) -> None:
        """Refuse a network that is not linear."""
        obstacle = other_operation(model, image)
        if obstacle:
            raise ModelError(
                model.name,
                f"is not linear, and radius_exact needs it to be: {obstacle}",
                "use radius_attack",
            )

    def estimate(self, batch: ImageBatch) -> list[tuple[Result, ...]]:
        """Evaluate the closed form.

        Raises:
            ModelError: the logits are not linear in the pixels.
        """
        model = batch.engine.model
        y = batch.predicted
        rows = max(1, batch.engine.gradient_rows(shape_of(batch.x), 1))
        weights = matrix(model, batch.x[0], batch.classes, rows)  # (classes, pixels)
        _check_linear(batch, weights)
        logits = batch.logits
        margins = logits.gather(1, y[:, None]) - logits  # (images, classes), 0 at y
        eps = torch.finfo(model.dtype).eps
        slopes = _own_slopes(weights, y, "l2")
        errors = margin_rounding(logits, slopes, eps, weights.shape[1])  # (images, classes)
        by_norm = []
        for norm in self.norm:
            slope = _own_slopes(weights, y, norm)
            # A class with the same weights as y is never reached, and y has no distance to itself.
            itself = torch.arange(batch.classes, device=y.device) == y[:, None]
            never = (slope == 0) | itself
            divisor = torch.where(never, 1.0, slope)
            # Giraudon et al., proposition 3.2 in its exact form: (z_y - z_j) / |w_y - w_j|.
            radius, reached = torch.where(never, torch.inf, margins / divisor).min(1)
            radius_errors = (errors / divisor).gather(1, reached[:, None])[:, 0]
            known = radius_errors.clamp_max(_UNKNOWN)
            searches = [Searched(rounding=error) for error in known.tolist()]
            passes = [(1, batch.classes)] * len(batch.x)
            cap = diameter(norm, shape_of(batch.x))
            results = results_of(
                batch,
                radius,
                reached=reached,
                cap=cap,
                interval=self.interval,
                passes=passes,
                searches=searches,
            )
            by_norm.append(results)
        return list(zip(*by_norm, strict=True))


def _check_linear(batch: ImageBatch, weights: Tensor) -> None:
    """Refuse logits that are not W x + b.

    b is eliminated by the first image: z(x) = z(x_0) + W (x - x_0). The operations of one pass may
    miss branches that other images take.

    Raises:
        ModelError: they differ by more than rounding.
    """
    pixels = batch.x.flatten(1).double()
    logits = batch.logits
    expected = logits[0] + (pixels - pixels[0]) @ weights.T
    largest = logits.abs().amax().clamp_min(1e-30)
    if ((expected - logits).abs().amax() > _FAR * largest).item():
        raise ModelError(
            batch.engine.model.name,
            "is not linear: its logits are not W x + b",
            "use radius_attack",
        )


def other_operation(model: Model, image: Tensor) -> str:
    """Why a network is not affine; empty if it is.

    The reason is its first operation that is not affine, or that numbers are taken out of the
    pixels.

    Args:
        model: pixels (n, channels, height, width) to logits (n, classes).
        image: (channels, height, width).
    """
    graph = record(model, image)
    others = (
        f"its graph has the operation {step.name}"
        for step in graph.steps[1:]
        if not is_affine(step)
    )
    return next(others, graph.obstacle)


def matrix(model: Model, image: Tensor, classes: int, rows: int) -> Tensor:
    """The matrix of an affine network: gradients of the logits with respect to the pixels (classes,
    pixels), float64.

    Args:
        model: pixels to logits.
        image: (channels, height, width), where the gradients are taken.
        classes: number of logits.
        rows: the most rows of a pass.
    """
    slopes = []
    for part in torch.arange(classes, device=image.device).split(rows):
        with torch.enable_grad():
            x = image.expand(len(part), *image.shape).detach().clone().requires_grad_(True)
            logits = model(x)
        slope = torch.zeros_like(x)
        # Logits that do not depend on the pixels have no graph.
        if logits.requires_grad:
            # Row k is the k-th logit of the part, so one gradient of the sum has all their slopes.
            own = logits.gather(1, part[:, None])
            (slope,) = torch.autograd.grad(own.sum(), x)
        slopes.append(slope.flatten(1).double())
    return torch.cat(slopes)


def _own_slopes(weights: Tensor, y: Tensor, norm: str) -> Tensor:
    """:func:`_slopes` of the class y of each image (images, classes)."""
    # Few classes are predicted in a chunk, so each class's slopes are computed once.
    labels, place = y.unique(return_inverse=True)
    by_class = [_slopes(weights, int(label), norm) for label in labels.tolist()]
    return torch.stack(by_class)[place]


def _slopes(weights: Tensor, y: int, norm: str) -> Tensor:
    """The dual norm of w_y - w_j for every class j (classes,)."""
    dual = 2 if norm == "l2" else 1
    parts = weights.split(_ROWS)
    norms = [torch.linalg.vector_norm(weights[y] - part, dual, dim=1) for part in parts]
    return torch.cat(norms)
