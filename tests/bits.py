"""Results that are the same, as far as the machine and the network promise it.

``ROBAUDIT_TEST_ROUNDING=1 make test`` runs the tests on a pretended processor, whose matrix products depend on the number of rows.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

from robaudit.models.logits import LogitModel

_MANY = 16


def pretend_rounding() -> None:
    """Let logits depend on the size of the batch by a few units in the last place, if the environment asks for it."""
    if not os.environ.get("ROBAUDIT_TEST_ROUNDING"):
        return
    real = LogitModel._once

    def once(self: LogitModel, inputs: Tensor) -> Tensor:
        logits = real(self, inputs)
        odd = torch.arange(logits.shape[1], device=logits.device) % 2
        return logits * (1 + 4 * torch.finfo(logits.dtype).eps * odd) if len(inputs) > _MANY else logits

    LogitModel._once = once  # type: ignore[method-assign]
