"""How is a normal quantile computed in single precision where five digits are enough, far into the lower tail too?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

# z(p) = (1/2 - p) N(s) / D(s) with s = sqrt(2 - log(4 p (1 - p))), minimax in the relative error (3.7e-6) for |Phi^-1(p)|
# <= 10.5, fitted by reweighted least squares. Coefficients rise with the power of s.
_NUMERATOR = (8.44888632, 24.54518492, -48.29488349, 41.42816595, -16.34828229, 2.83714481)
_DENOMINATOR = (17.52117726, -21.35108168, 15.20186515, -5.65103407, 1.0)
_OFFSET = 2.0 - math.log(4.0)
_LEAST = 1e-25  # p (1 - p) is not taken smaller


def scaled_upper_quantile(probability: Tensor, out: Tensor, scratch: Sequence[Tensor]) -> Tensor:
    """-Phi^-1(p) / sqrt 2, to a relative error of 5e-6 for p in [1e-25, 1 - 6e-8]; other p count as the nearest of these.

    Elementary operations without allocation, so it runs at the speed of the machine's vectors: a third of the time of
    `torch.special.ndtri`.

    Args:
        probability: p, any shape, float32; overwritten.
        out: where the result goes, of the same shape and type.
        scratch: two more of the same shape and type.

    Returns:
        `out`; finite.
    """
    numerator, denominator, offset = _coefficients(probability.device)
    s, below = scratch
    torch.addcmul(probability, probability, probability, value=-1.0, out=s).clamp_min_(_LEAST).log_()
    torch.sub(offset, s, out=s).sqrt_()
    torch.add(numerator[-2], s, alpha=_NUMERATOR[-1] * math.sqrt(0.5), out=out)
    for coefficient in numerator[-3::-1]:
        torch.addcmul(coefficient, out, s, out=out)
    torch.add(denominator[-2], s, out=below)
    for coefficient in denominator[-3::-1]:
        torch.addcmul(coefficient, below, s, out=below)
    return out.div_(below).mul_(probability.neg_().add_(0.5))


@lru_cache(maxsize=8)
def _coefficients(device: torch.device) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], Tensor]:
    numerator = torch.tensor([c * math.sqrt(0.5) for c in _NUMERATOR], dtype=torch.float32, device=device)
    denominator = torch.tensor(_DENOMINATOR, dtype=torch.float32, device=device)
    return numerator.unbind(), denominator.unbind(), torch.tensor(_OFFSET, dtype=torch.float32, device=device)
