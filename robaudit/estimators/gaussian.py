"""How do margins that are (taken to be) jointly normal become estimates of p_robust?"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from robaudit.estimators.base import Estimate

_VISIBLE_ERROR = 2e-3


def plain_estimates(
    values: Sequence[float], flips_to: Sequence[int], passes: tuple[int, int], notes: Sequence[str] | None = None
) -> list[Estimate]:
    """Estimates that claim no interval."""
    remarks = notes or [""] * len(values)
    return [
        Estimate(value=p, flips_to=c, forwards=passes[0], backwards=passes[1], note=note)
        for p, c, note in zip(values, flips_to, remarks, strict=True)
    ]


def cdf_notes(error: Tensor) -> list[str]:
    """A remark where the numerical error of the normal CDF (3 standard errors) could show in the third decimal."""
    return [f"normal CDF within {e:.1g}" if e > _VISIBLE_ERROR else "" for e in error.tolist()]
