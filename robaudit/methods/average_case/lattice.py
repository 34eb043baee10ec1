"""Randomly shifted lattice points, and the mean and standard error of an integrand over them."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from robaudit.numerics.rowwise import total

SHIFTS = 16
"""Independent randomisations; the standard error comes from their spread."""

WIDENED_THREE = 3.586
"""Student's t for 16 shifts at the level of three standard deviations."""

_CACHED = 1 << 16  # the most numbers of a set that is cached: 512 KiB

# Generating vector for 2^4 to 2^13 points, built component by component: each entry minimises, over
# all sizes, the largest ratio of the worst-case error to the best error in the Korobov space with
# product weights 1/j (Cools, Kuo and Nuyens 2006, SIAM J. Sci. Comput. 28). It takes two thirds of
# the time of square roots of primes for the same error (docs/research/average_case.md).
_BITS = 13
_GENERATOR = (
    1, 3367, 327, 535, 3461, 3331, 2217, 51, 643, 1695, 793, 2771, 2069, 3057, 3155, 3955, 3395,
    2957, 3523, 2435, 3831, 417, 1569, 3739, 1163, 3121, 3587, 1507, 669, 2497, 577, 3089, 4051,
    883, 3337, 2993, 2155, 4079, 111, 3893, 761, 1225, 2869, 3275, 2251, 3179, 3861, 355, 2093,
    1689, 1783, 1379, 2031, 1349, 1289, 2931, 3117, 449, 3551, 79, 821, 387, 945, 2313,
)  # fmt: skip


def lattice_points(
    dimension: int, start: int, stop: int, seed: int, device: torch.device
) -> Tensor:
    """Points ``start`` to ``stop`` of a lattice sequence under ``SHIFTS`` random shifts, folded by
    the baker's transformation.

    The first 2^m points of the sequence are a lattice, for every m. So a computation doubles its
    points and keeps those it has.

    Args:
        dimension: number of coordinates d; it does not change the first coordinates.
        start: index of the first point.
        stop: index after the last point.
        seed: seed of the shifts. The global generator is never used.
        device: device of the points.

    Returns:
        (d, SHIFTS * (stop - start)), shift by shift, float64, strictly inside (0, 1); shared, so do
        not change it.

    Source:
        Hickernell (2002), in Monte Carlo and Quasi-Monte Carlo Methods 2000, for 1 - |2 x - 1|.
    """
    small = dimension * (stop - start) * SHIFTS <= _CACHED
    points = _cached_points if small else _points
    return points(dimension, start, stop, seed, device)


def _points(dimension: int, start: int, stop: int, seed: int, device: torch.device) -> Tensor:
    """:func:`lattice_points`, computed."""
    # On the host, so that every device sees the same shifts.
    generator = torch.Generator().manual_seed(seed)
    shifts = torch.rand(dimension, SHIFTS, 1, generator=generator, dtype=torch.float64).to(device)
    bits = max(_BITS, (stop - 1).bit_length())
    # The sequence visits i z / 2^m with the bits of i reversed, as van der Corput's does. Integers
    # modulo 2^m are exact where floating-point products would round.
    index = _reversed_bits(bits, device)[start:stop]
    multiple = (index * _generator(dimension, device).unsqueeze(-1)) & ((1 << bits) - 1)
    x = multiple.unsqueeze(1).double() / (1 << bits) + shifts  # (d, SHIFTS, points)
    folded = 1.0 - (2.0 * x.frac() - 1.0).abs()
    # The integrand takes Phi^-1 of the points, which is infinite at 0 and 1.
    return folded.clamp(1e-15, 1.0 - 1e-15).flatten(1)


_cached_points = lru_cache(maxsize=16)(_points)


@lru_cache(maxsize=8)
def _reversed_bits(bits: int, device: torch.device) -> Tensor:
    """0 to 2^bits - 1 with reversed binary digits."""
    index = torch.arange(1 << bits, device=device)
    reverse = torch.zeros_like(index)
    for bit in range(bits):
        reverse |= ((index >> bit) & 1) << (bits - 1 - bit)
    return reverse


@lru_cache(maxsize=64)
def _generator(dimension: int, device: torch.device) -> Tensor:
    """The generating vector (d,), int64."""
    head = torch.tensor(_GENERATOR[:dimension], device=device, dtype=torch.int64)
    # Coordinates beyond the table get odd numbers below 2^12, spread by the golden ratio.
    most = max(dimension, len(_GENERATOR))
    later = torch.arange(len(_GENERATOR), most, device=device, dtype=torch.float64)
    spread = (later * 0.6180339887498949).frac() * (1 << (_BITS - 1))
    tail = spread.long() | 1
    return torch.cat([head, tail])


def mean_and_error(sums: Tensor, points: int) -> tuple[Tensor, Tensor]:
    """The mean over all points and shifts, and its standard error.

    Args:
        sums: of the integrand over the points of each shift (rows, SHIFTS).
        points: of each shift.

    Returns:
        (rows,) each.
    """
    # The shifts are independent, the points of one are not: the error comes from SHIFTS means.
    means = sums / points
    value = total(means) / SHIFTS
    spread = total((means - value.unsqueeze(-1)).square()) / (SHIFTS - 1)
    return value, (spread / SHIFTS).sqrt()
