"""Networks and an estimator that another process can import, or cannot."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn

from robaudit import P_ROBUST, Estimator, ImageBatch
from robaudit.estimators.base import Need


class Halves(nn.Module):
    """Two classes: the brighter half of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(3.0))

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=3)
        return self.scale * torch.stack([left.mean((1, 2, 3)), right.mean((1, 2, 3))], 1)


def halves(x: Tensor) -> Tensor:
    """The same without weights."""
    left, right = x.chunk(2, dim=3)
    return 3 * torch.stack([left.mean((1, 2, 3)), right.mean((1, 2, 3))], 1)


class Upset(Halves):
    """Has a bug that shows under noise."""

    def forward(self, x: Tensor) -> Tensor:
        if float(x.min()) < 0:
            raise ZeroDivisionError("it is negative")
        return super().forward(x)


class OnlyHere(Halves):
    """Can be sent, but not received."""

    def __reduce__(self) -> Any:
        return _received, (os.getpid(),)


def _received(pid: int) -> OnlyHere:
    if os.getpid() != pid:
        raise RuntimeError("only here")
    return OnlyHere()


class Buggy(Estimator):
    """Divides by zero."""

    quantity, needs = P_ROBUST, Need.LEVEL
    summary, prefer, source = "a bug", "never", "a test"

    def passes(self, classes: int) -> tuple[int, int]:
        return 1, 0

    def estimate(self, batch: ImageBatch) -> Any:
        return len(batch.ids) // 0
