"""Options and notes of the estimators that linearise margins."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from robaudit.engine.estimator import Estimator, Need
from robaudit.engine.selection import ALL, Selection
from robaudit.methods.average_case.mvn import mvn_cdf
from robaudit.numerics.margins import mv_sigmoid
from robaudit.quantities import P_ROBUST

Link = Literal["normal_cdf", "mv_sigmoid"]
"""The link from standardised margins z to a probability: Phi_R(z), or 1 / (1 + sum_i exp(-z_i))."""

_VISIBLE = 5e-4
_VISIBLE_ERROR = 2e-3


class FewClasses(Estimator):
    """An estimator that differentiates only the margins of classes that can matter.

    With at most 33 classes all margins are differentiated. With more, 8 further forward passes
    estimate the mean and standard deviation of every margin; the 8 to ``classes`` smallest in units
    of their standard deviation are selected, until the omitted margins hold less than about 1e-4 of
    failure probability. If more than 5e-4 may be missing, ``note`` says so: an estimate, not a
    bound.
    """

    quantity = P_ROBUST
    needs = Need.LEVEL | Need.GRADIENTS | Need.COVARIANCE
    link: ClassVar[Link] = "normal_cdf"

    classes: int = Field(
        32,
        ge=8,
        le=10**6,
        description="with more than 33 classes: the most classes whose gradients are taken",
    )

    def most(self, classes: int) -> int | None:
        """The most margins selected for a model with this many classes; None for all."""
        return None if classes - 1 <= max(ALL, self.classes) else self.classes


def cdf_notes(error: Tensor) -> list[str]:
    """A note for each image if the numerical error of the normal CDF (3 standard errors) could show
    in the third decimal."""
    return [f"normal CDF within {e:.1g}" if e > _VISIBLE_ERROR else "" for e in error.tolist()]


def linked(
    link: Link, z: Tensor, r: Tensor, selection: Selection, images: int
) -> tuple[Tensor, Tensor | None, list[str]]:
    """Probabilities of standardised margins (rows, k), where the first rows are the images' values;
    numerical errors of the normal CDF, or None; and a note for each image if an error, or the
    estimated effect of omitted classes, could show.
    """
    if link == "mv_sigmoid":
        probabilities = mv_sigmoid(z)
        errors = None
        notes = [""] * images
    else:
        probabilities, errors = mvn_cdf(z, r)
        probabilities = probabilities.clamp(0, 1)
        notes = cdf_notes(errors[:images])
    p = probabilities[:images]
    missing = selection.odds_effect(p) if errors is None else torch.minimum(selection.failure, p)
    remarks = [
        f"classes left out: about {m:.0e} of failure (estimated)" if m > _VISIBLE else ""
        for m in missing.tolist()
    ]
    return (
        probabilities,
        errors,
        ["; ".join(filter(None, pair)) for pair in zip(notes, remarks, strict=True)],
    )
