"""An estimator with parts: several norms of the loss from one set of noisy copies."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field, field_validator

from robaudit import LOSS, Estimator, ImageBatch, Interval, IntervalKind, Need, Part, PartName, Result


class Norms(Estimator):
    """(E[l^q])^(1/q) of the cross-entropy l of noisy copies, relative to the class of the clean image, for each q.

    Source: a test.
    """

    quantity, needs = LOSS, Need.LEVEL
    summary, prefer, source = "norms of the loss under noise, by counting", "a test", "a test"
    interval: ClassVar[Interval] = Interval(IntervalKind.OTHER, remark="delta method")

    q: tuple[Annotated[float, Field(gt=0)], ...] = Field((1.0, 10.0), min_length=1, description="orders of the norms")
    samples: int = Field(40, ge=2, description="noisy copies of each image")

    @field_validator("q", mode="before")
    @classmethod
    def _one_or_many(cls, q: object) -> object:
        return tuple(q) if isinstance(q, list | tuple) else (q,)

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(Part(PartName.Q, q) for q in self.q)

    def passes(self, classes: int) -> tuple[int, int]:
        return 1 + self.samples, 0

    def estimate(self, batch: ImageBatch) -> list[tuple[Result, ...]]:
        losses: list[list[float]] = [[] for _ in batch.ids]
        for logits, image in batch.noisy(self.samples):
            target = batch.predicted[image]
            for index, loss in zip(
                image.tolist(), torch.nn.functional.cross_entropy(logits, target, reduction="none").tolist(), strict=True
            ):
                losses[index].append(loss)
        return [tuple(self._norm(torch.tensor(of_image, dtype=torch.float64), q) for q in self.q) for of_image in losses]

    def _norm(self, loss: torch.Tensor, q: float) -> Result:
        """The mean of l^q, relative to the largest loss so that nothing overflows, and the error of its root to first order."""
        largest = max(float(loss.max()), 1e-300)
        powers = (loss / largest) ** q
        mean = float(powers.mean())
        value = largest * mean ** (1 / q)
        error = value / (q * mean) * float(powers.std()) / math.sqrt(len(loss))
        return Result(
            value,
            flips_to=None,
            forwards=1 + self.samples,
            backwards=0,
            lower=max(0.0, value - 1.96 * error),
            upper=value + 1.96 * error,
            std_error=error,
            interval=self.interval,
            numbers={"q": q},
        )


class Miscounted(Norms):
    """Gives a value too few or too many, or none, as an option says."""

    quantity = LOSS
    fault: str = Field("too few", description="how it breaks the contract")

    def estimate(self, batch: ImageBatch) -> list[tuple[Result, ...]]:
        found = super().estimate(batch)
        if self.fault == "one value":
            return [values[0] for values in found]  # type: ignore[misc]
        if self.fault == "nan" and "6" in batch.ids:
            found[batch.ids.index("6")] = (found[0][0], replace(found[0][1], value=math.nan))
        return {"too few": [values[1:] for values in found], "too many": [(*values, values[0]) for values in found]}.get(self.fault, found)
