"""Shared options of loss estimators: the target class, and the orders of the norms."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from torch import Tensor

from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Estimator
from robaudit.names import Part, PartName
from robaudit.quantities import LOSS
from robaudit.spec.fields import as_tuple

# At 1e6 the norm of 2,000 copies is within 1e-5 of their maximum in log Z (log m / q), and at 1e-6
# it is nearly their geometric mean.
LEAST_Q = 1e-6
MOST_Q = 1e6


class LossEstimator(Estimator):
    """An estimator of the cross-entropy l of an image under noise, in nats.

    0 is certainty; lower is more robust.
    """

    quantity = LOSS

    target: Literal["label", "predicted"] = Field(
        "label",
        description="the class that the loss is against: the label, or the class predicted "
        "without noise",
    )

    @property
    def needs_labels(self) -> bool:
        """Whether every image must have a label."""
        return self.target == "label"

    def targets(self, batch: ImageBatch) -> Tensor:
        """The target class of each image (images,), int64."""
        return batch.labels if self.target == "label" else batch.predicted


def _ascending(orders: tuple[float, ...]) -> tuple[float, ...]:
    """The orders, sorted: their order in the spec changes no result."""
    if len(set(orders)) != len(orders):
        raise ValueError("give each q once")
    return tuple(sorted(orders))


Order = Annotated[float, Field(ge=LEAST_Q, le=MOST_Q, allow_inf_nan=False)]


class QNorm(LossEstimator):
    """Z_q = (E[l^q])^(1/q), the functional q-norm of the loss over the noise, for several q at
    once.

    q = 1 is the mean of the loss, q -> infinity its maximum: larger q weight rare bad draws more.

    Source: Rice et al., Robustness between the worst and average case, equation 3.
    """

    q: Annotated[
        tuple[Order, ...],
        BeforeValidator(as_tuple),
        AfterValidator(_ascending),
        Field(min_length=1, max_length=64),
    ] = Field(
        (1.0, 10.0, 100.0, 1000.0),
        description="the orders of the norm; each is a result of its own",
    )

    @property
    def parts(self) -> tuple[Part, ...]:
        """One value for each q."""
        return tuple(Part(PartName.Q, q) for q in self.q)
