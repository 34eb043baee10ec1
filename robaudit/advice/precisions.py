"""Speed and effect of a lower precision of the noisy passes."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.auditing.checks import precision_effects
from robaudit.auditing.prepare import Ready
from robaudit.errors import ModelError
from robaudit.estimators.engine import Engine
from robaudit.models.logits import LogitModel, for_noisy_passes
from robaudit.spec.model import Precision

WORTHWHILE = 1.25
"""Least speed-up of noisy passes at which a lower precision is considered."""

HARMLESS = 0.002
"""Largest shift of the share that keeps its class at which a lower precision is recommended."""

_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Offer:
    """A lower precision of the noisy passes.

    Attributes:
        precision: bf16 or tf32.
        speed: how many times as fast noisy passes are.
        changed: share of noisy copies that change class; None where it was not measured because the speed-up is too small.
        shift: largest change of the share that keeps the clean class, over the noise levels; None likewise.
        recommended: whether it is fast enough and shifts the share by at most 0.002.
    """

    precision: Precision
    speed: float
    changed: float | None
    shift: float | None
    recommended: bool

    @property
    def text(self) -> str:
        """One line for the user."""
        speed = f"precision {self.precision}: noisy passes {self.speed:.2g} times as fast"
        if self.changed is None or self.shift is None:
            return f"{speed}: not worth it here"
        return (
            f"{speed}, {self.changed:.1%} of the noisy copies change class, and the share that keeps it shifts by at most {self.shift:.4f}"
        )


def precision_offers(ready: Ready, *, skip_bad: bool = False) -> list[Offer]:
    """Time a full noisy pass in each precision, and measure what the faster ones change; nothing unless the spec asks for fp32.

    Args:
        ready: the audit.
        skip_bad: leave unusable samples out.
    """
    if ready.spec.run.precision != "fp32":
        return []
    engine, offers = ready.engine, list[Offer]()
    candidates: tuple[Precision, ...] = ("tf32", "bf16") if engine.model.device.type == "cuda" else ("bf16",)
    for precision in candidates:
        try:
            lower = for_noisy_passes(engine.model, precision)
            speed = _speed(engine, lower, ready.image)
        except (ModelError, RuntimeError):  # an operator without bfloat16
            continue
        if speed < WORTHWHILE:
            offers.append(Offer(precision, speed, None, None, recommended=False))
            continue
        other = Engine(engine.model, engine.noises, engine.classes, engine.rows(ready.image.shape), noisy=lower)
        effects = precision_effects(other, ready.samples, ready.spec.levels, precision, skip_bad=skip_bad)
        changed = sum(one.changed for one in effects) / sum(one.copies for one in effects)
        shift = max(abs(one.kept - one.kept_fp32) / one.copies for one in effects)
        offers.append(Offer(precision, speed, changed, shift, recommended=shift <= HARMLESS))
    return offers


def _speed(engine: Engine, lower: LogitModel, image: Tensor) -> float:
    """Ratio of the least times of a full pass in fp32 and in the lower precision, alternating; one of each if it is clearly slower."""
    model = engine.model
    x = image.to(model.device, model.dtype).expand(engine.rows(image.shape), *image.shape)
    x = x.contiguous(memory_format=model.memory_format)
    best = [float("inf"), float("inf")]
    for repeat in range(1 + _REPEATS):
        for i, network in enumerate((model, lower)):
            started = time.perf_counter()
            with torch.inference_mode():
                float(network(x).sum())  # waits for the device
            if repeat:
                best[i] = min(best[i], time.perf_counter() - started)
        if repeat == 1 and best[1] > 2 * best[0]:
            break
    return best[0] / best[1]
