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
"""The link from standardised margins z to a probability: Phi_R(z), or 1 / (1 + sum_i exp(-z_i)).

Source: Han et al., Lemma 3.1 and section 3.2.3.
"""

_VISIBLE = 5e-4  # missing probability that would change the third decimal
_VISIBLE_ERROR = 2e-3  # of the CDF, three standard errors: twice what it aims at


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

    def most_margins(self, classes: int) -> int | None:
        """The most margins selected for a model with this many classes; None for all."""
        return None if classes - 1 <= max(ALL, self.classes) else self.classes


def cdf_notes(error: Tensor) -> list[str]:
    """A note for each image whose numerical error of the normal CDF (3 standard errors) could show
    in the third decimal; "" for the others."""
    return [f"normal CDF within {e:.1g}" if e > _VISIBLE_ERROR else "" for e in error.tolist()]


def linked(
    link: Link, z: Tensor, r: Tensor, selection: Selection, images: int
) -> tuple[Tensor, Tensor | None, list[str]]:
    """The probabilities that all margins stay positive.

    Args:
        link: from standardised margins to a probability.
        z, r: standardised margins (rows, k) and their correlations (rows, k, k).
        selection: the margins of each image.
        images: the first rows are the images' values; others leave out a group of draws.

    Returns:
        Probabilities (rows,); numerical errors of the normal CDF (rows,), or None; and a note for
        each image where an error, or the estimated effect of omitted classes, could show.
    """
    if link == "mv_sigmoid":
        probabilities = mv_sigmoid(z)
        errors = None
        p = probabilities[:images]
        notes = [""] * images
        missing = selection.odds_effect(p)
    else:
        probabilities, errors = mvn_cdf(z, r)
        probabilities = probabilities.clamp(0, 1)
        p = probabilities[:images]
        notes = cdf_notes(errors[:images])
        # The union bound of the omitted failures; no more than p can be missing.
        missing = torch.minimum(selection.failure, p)
    remarks = [
        f"classes left out: about {m:.0e} of failure (estimated)" if m > _VISIBLE else ""
        for m in missing.tolist()
    ]
    joined = ["; ".join(filter(None, pair)) for pair in zip(notes, remarks, strict=True)]
    return probabilities, errors, joined
