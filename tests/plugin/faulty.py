"""Estimators that break the contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from pydantic import Field, model_validator

from robaudit import P_ROBUST, Estimator, Result, Work


def estimates(work: Work, **fields: Any) -> list[Result]:
    return [Result(**{"value": 0.5, "flips_to": None, "forwards": 1, "backwards": 0, **fields}) for _ in work.ids]


def divide(work: Work) -> list[Result]:
    return estimates(work, value=len(work.ids) / 0)


FAULTS: Mapping[str, tuple[Callable[[Work], Any], str]] = {
    "too few": (lambda work: estimates(work)[1:], "estimate() returned 0 results for 1 image"),
    "nothing": (lambda work: None, "raised TypeError: 'NoneType' object is not iterable"),
    "numbers": (lambda work: [0.5 for _ in work.ids], "estimate() returned float 0.5 for 0, not a Result"),
    "a value for all": (lambda work: estimates(work, value=torch.ones(8)), "value is a Tensor of shape (8,), not a number"),
    "half a pass": (lambda work: estimates(work, forwards=0.5), "forwards is float 0.5, not a whole number, 0 or more"),
    "a class that is not there": (lambda work: estimates(work, flips_to=10), "flips_to is 10 and votes None; the model has 10 classes"),
    "a probability above 1": (lambda work: estimates(work, value=1.5), "value is 1.5; p_robust is from 0 to 1"),
    "an interval beside the value": (
        lambda work: estimates(work, lower=0.6, upper=0.7),
        "value is 0.5, outside its interval",
    ),
    "an exception": (divide, "raised ZeroDivisionError: division by zero (faulty.py, line 20)"),
}


class Faulty(Estimator):
    """Does what an option says."""

    quantity, needs = P_ROBUST, frozenset({"logits"})
    summary, prefer, source = "breaks the contract", "never", "a test"
    fault: str = Field("too few", description="how it breaks the contract")

    def passes(self, classes: int) -> tuple[int, int]:
        return 1, 0

    def estimate(self, work: Work) -> Any:
        return FAULTS[self.fault][0](work)


class WithoutPasses(Faulty):
    def passes(self, classes: int) -> Any:
        return None


class Undeclared(Estimator):
    needs = frozenset({"logits"})
    summary, prefer, source = "declares no quantity", "never", "a test"

    def passes(self, classes: int) -> tuple[int, int]:
        return 1, 0

    def estimate(self, work: Work) -> list[Result]:
        return estimates(work)


class Unfinished(Estimator):
    quantity, needs = P_ROBUST, frozenset({"logits"})
    summary, prefer, source = "defines no passes", "never", "a test"

    def estimate(self, work: Work) -> list[Result]:
        return estimates(work)


class Numpy(Faulty):
    """Gives NumPy's numbers, as one may."""

    def estimate(self, work: Work) -> list[Result]:
        return estimates(work, value=np.float32(0.5), flips_to=np.int64(1), forwards=np.int32(1), numbers={"x": np.float32(2.0)})


class Demanding(Faulty):
    """Has an option without a default."""

    wanted: int = Field(description="how many")


class Refusing(Faulty):
    """Raises an exception of its own when its options are checked."""

    @model_validator(mode="after")
    def _refuse(self) -> Refusing:
        raise RuntimeError("no licence")
