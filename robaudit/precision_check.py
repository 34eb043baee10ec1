"""What does a lower precision of the noisy passes change? Measured on a few noisy copies, before a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.datasets.base import Dataset, first_samples
from robaudit.estimators.engine import Engine
from robaudit.models.logits import rounded_products
from robaudit.spec import Precision, sigma_text

_IMAGES, _COPIES = 16, 32


@dataclass(frozen=True, slots=True)
class PrecisionEffect:
    """The same noisy copies in fp32 and in the lower precision.

    Attributes:
        precision: tf32 or bf16.
        sigma: noise level.
        images, copies: how many images, and noisy copies in all.
        changed: copies whose class is another.
        kept_fp32, kept: copies that keep the class of the clean image, in fp32 and in the lower precision.
    """

    precision: Precision
    sigma: float
    images: int
    copies: int
    changed: int
    kept_fp32: int
    kept: int

    @property
    def text(self) -> str:
        """One line for the user."""
        what = f"{self.changed} of {self.copies} noisy copies ({self.images} images) change class"
        return (
            f"precision {self.precision} at sigma {sigma_text(self.sigma)}: {what}; "
            f"kept {self.kept / self.copies:.1%}, in fp32 {self.kept_fp32 / self.copies:.1%}"
        )


def precision_effects(
    engine: Engine, dataset: Dataset, sigmas: Sequence[float], precision: Precision, *, skip_bad: bool
) -> list[PrecisionEffect]:
    """Pass 32 noisy copies of each of the first 16 images through the network in fp32 and in ``precision``, with the same noise."""
    model = engine.model
    samples = list(first_samples(dataset, _IMAGES, skip_bad=skip_bad))
    x = torch.stack([sample.pixels.to(model.dtype) for sample in samples]).to(model.device)
    ids = [sample.id for sample in samples]
    with rounded_products(False):
        predicted = engine.logits(x).argmax(1)
    return [_effect(engine, x, ids, predicted, sigma, precision) for sigma in sigmas]


def _effect(engine: Engine, x: Tensor, ids: Sequence[str], predicted: Tensor, sigma: float, precision: Precision) -> PrecisionEffect:
    rounded = precision == "tf32"
    total = torch.zeros(3, dtype=torch.int64, device=x.device)
    with rounded_products(rounded):
        for batch, logits in engine.noisy_logits(x, ids, sigma, _COPIES):
            target, lower = predicted[batch.image], logits.argmax(1)
            with rounded_products(False), torch.inference_mode():
                exact = engine.model(batch.padded)[: len(target)].argmax(1)
            total += torch.stack([(lower != exact).sum(), (exact == target).sum(), (lower == target).sum()])
    changed, kept_fp32, kept = total.tolist()
    return PrecisionEffect(precision, sigma, len(x), len(x) * _COPIES, changed, kept_fp32, kept)
