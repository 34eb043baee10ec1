"""Estimators that break the contract."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from pydantic import Field, model_validator

from robaudit import P_ROBUST, Estimator, ImageBatch, Need, Result
from robaudit.methods.intermediate_q.qnorm_mc import QNormMc


def estimates(batch: ImageBatch, **fields: Any) -> list[Result]:
    return [
        Result(**{"value": 0.5, "flips_to": None, "forwards": 1, "backwards": 0, **fields})
        for _ in batch.ids
    ]


def divide(batch: ImageBatch) -> list[Result]:
    return estimates(batch, value=len(batch.ids) / 0)


FAULTS: Mapping[str, tuple[Callable[[ImageBatch], Any], str]] = {
    "too few": (lambda batch: estimates(batch)[1:], "estimate() returned 0 results for 1 image"),
    "numbers": (
        lambda batch: [0.5 for _ in batch.ids],
        "estimate() returned float 0.5 for 0, not a Result",
    ),
    "a value for all": (
        lambda batch: estimates(batch, value=torch.ones(8)),
        "value is a Tensor of shape (8,), not a number",
    ),
    "a class that is not there": (
        lambda batch: estimates(batch, flips_to=10),
        "flips_to is 10 and votes None; the model has 10 classes",
    ),
    "a probability above 1": (
        lambda batch: estimates(batch, value=1.5),
        "value is 1.5; p_robust is from 0 to 1",
    ),
    "an interval beside the value": (
        lambda batch: estimates(batch, lower=0.6, upper=0.7),
        "value is 0.5, outside its interval",
    ),
    "an exception": (divide, "raised ZeroDivisionError: division by zero (faulty.py, line "),
}


class Faulty(Estimator):
    """Does what an option says."""

    quantity = P_ROBUST
    needs = Need.LEVEL
    summary = "breaks the contract"
    prefer = "never"
    source = "a test"
    fault: str = Field("too few", description="how it breaks the contract")

    def passes(self, classes: int) -> tuple[int, int]:
        return 1, 0

    def estimate(self, batch: ImageBatch) -> Any:
        return FAULTS[self.fault][0](batch)


class WithoutPasses(Faulty):
    def passes(self, classes: int) -> Any:
        return None


class Undeclared(Estimator):
    needs = Need.LEVEL
    summary = "declares no quantity"
    prefer = "never"
    source = "a test"

    def passes(self, classes: int) -> tuple[int, int]:
        return 1, 0

    def estimate(self, batch: ImageBatch) -> list[Result]:
        return estimates(batch)


class Unfinished(Estimator):
    quantity = P_ROBUST
    needs = Need.LEVEL
    summary = "defines no passes"
    prefer = "never"
    source = "a test"

    def estimate(self, batch: ImageBatch) -> list[Result]:
        return estimates(batch)


class Numpy(Faulty):
    """Gives NumPy's numbers, as one may."""

    def estimate(self, batch: ImageBatch) -> list[Result]:
        return estimates(
            batch,
            value=np.float32(0.5),
            flips_to=np.int64(1),
            forwards=np.int32(1),
            numbers={"x": np.float32(2.0)},
        )


class Refusing(Faulty):
    """Raises an exception of its own when its options are checked."""

    @model_validator(mode="after")
    def _refuse(self) -> Refusing:
        raise RuntimeError("no licence")


class Miscounted(QNormMc):
    """Gives a value too few or too many of each image, or one that is no number, as an option
    says."""

    fault: str = Field("too few", description="how it breaks the contract")

    def estimate(self, batch: ImageBatch) -> list[tuple[Result, ...]]:
        found = list(super().estimate(batch))
        if self.fault == "nan" and "6" in batch.ids:
            first, *_, last = found[batch.ids.index("6")]
            found[batch.ids.index("6")] = first, replace(last, value=math.nan)
        return {
            "too few": [values[1:] for values in found],
            "too many": [(*values, values[0]) for values in found],
        }.get(self.fault, found)
