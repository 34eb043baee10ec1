"""Certificates from a Lipschitz constant, computed or declared, and checked against the images."""

from __future__ import annotations

from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from robaudit.engine.batch import ImageBatch
from robaudit.errors import ModelError
from robaudit.methods.certificates.certificate import CERTIFICATE
from robaudit.methods.certificates.network_bounds import Lipschitz, lipschitz_bound
from robaudit.methods.radius.radius_estimator import ByNorm
from robaudit.models.logits import LogitModel
from robaudit.numerics.margins import margin_rounding
from robaudit.quantities import CERTIFIED
from robaudit.spec.fields import SpecSection

_FURTHEST = 1e9
"""The value for an infinite radius: the logits do not depend on the pixels."""
_SLACK = 1e-9  # relative, for rounding of distances in float64


class Declared(SpecSection):
    """A declared Lipschitz constant K of the whole map from pixels in [0, 1], before normalisation,
    to logits.

    Args:
        l2: |z(x) - z(y)|_2 <= l2 |x - y|_2.
        linf: |z(x) - z(y)|_inf <= linf |x - y|_inf.
        source: where the constant is from; printed with the results.
    """

    l2: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="K in l2, from pixels in [0, 1] to logits"
    )
    linf: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="K in linf, from pixels in [0, 1] to logits"
    )
    source: str = Field(
        min_length=1, max_length=80, description="where it is from, for example orthogonal layers"
    )

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        """Refuse a declaration without a constant."""
        if self.l2 is None and self.linf is None:
            raise ValueError("give the constant: l2, linf or both")
        return self

    @property
    def constants(self) -> dict[str, float]:
        """The declared constants by norm."""
        # The norm that is left out follows from the other: Lipschitz.from_declared.
        by_norm = {"l2": self.l2, "linf": self.linf}
        return {norm: value for norm, value in by_norm.items() if value is not None}


class LipschitzCertificate(ByNorm):
    """An estimator of certified radii that needs a Lipschitz constant of the network."""

    quantity = CERTIFIED
    interval = CERTIFICATE

    lipschitz: Declared | None = Field(
        None,
        description="a Lipschitz constant of the logits and its source, {l2: K, source: ...}; "
        "default: computed from the network",
    )

    def check_model(self, model: LogitModel, image: Tensor) -> None:
        """Refuse a network without a constant before the run."""
        # Computed now, so that a network without one ends the run at its start.
        if self.lipschitz is None:
            lipschitz_bound(model, image)

    def bound(self, batch: ImageBatch) -> Lipschitz:
        """The constants.

        Raises:
            ModelError: the network has no constants, or the images contradict them.
        """
        model = batch.engine.model
        pixels = batch.x[0].numel()
        if self.lipschitz is None:
            bound = lipschitz_bound(model, batch.x[0])
        else:
            bound = Lipschitz.from_declared(self.lipschitz.constants, batch.classes, pixels)
        _refuse_contradicted(bound, batch)
        return bound

    def remark(self) -> str:
        """The source of a declared constant, for the row's note."""
        if self.lipschitz is None:
            return ""
        return f"Lipschitz constant declared: {self.lipschitz.source}"


def rounding(batch: ImageBatch, logits: Tensor, constants: Tensor, span: float = 0.0) -> Tensor:
    """The most that rounding may add to margins of a chunk's images; see
    :func:`robaudit.numerics.margins.margin_rounding`."""
    eps = torch.finfo(batch.engine.model.dtype).eps
    return margin_rounding(logits, constants, eps, batch.x[0].numel(), span)


def furthest(margin: Tensor, constant: Tensor) -> Tensor:
    """margin / constant, rounded down; 1e9 if nothing can change the margin."""
    never = constant <= 0
    without_constant = torch.where(margin > 0, _FURTHEST, 0.0)
    divisor = torch.where(never, 1.0, constant)
    radius = torch.where(never, without_constant, margin / divisor)
    # A certificate must not be larger than the exact quotient.
    return (radius * (1 - 1e-12)).clamp_max(_FURTHEST)


def _refuse_contradicted(bound: Lipschitz, batch: ImageBatch) -> None:
    """Refuse constants that the chunk's images contradict.

    Each image is compared with the next: no difference of logits may change faster than the bound
    allows.

    Raises:
        ModelError: some images do.
    """
    logits = batch.logits
    x = batch.x.double()
    constants = bound.margins["l2"].to(logits.device).expand(2, -1, -1)
    # Neighbours only: all pairs of a chunk would cost more than the certificates.
    for a in range(len(x) - 1):
        b = a + 1
        moved = logits[a] - logits[b]
        apart = (x[a] - x[b]).flatten()
        # Only a change beyond the rounding of both images' logits is a contradiction.
        errors = rounding(batch, logits[a : b + 1], constants, bound.span).sum(0)
        change = (moved[:, None] - moved).abs() - errors
        distances = {"l2": apart.norm(), "linf": apart.abs().amax()}
        for norm, distance in distances.items():
            allowed = bound.margins[norm].to(change.device) * distance * (1 + _SLACK)
            if bool((change > allowed).any()):
                raise _contradiction(bound, batch, a)


def _contradiction(bound: Lipschitz, batch: ImageBatch, image: int) -> ModelError:
    """The error for an image and the next one whose logits differ by too much."""
    what = (
        f"its logits change faster from {batch.ids[image]} to {batch.ids[image + 1]} than its "
        "Lipschitz constant allows"
    )
    if bound.declared:
        remedy = "correct lipschitz, or leave it out: then it is computed"
    else:
        remedy = (
            "the network computes something that its graph of operations does not "
            "show; declare lipschitz, or leave this out"
        )
    return ModelError(batch.engine.model.name, what, remedy)
