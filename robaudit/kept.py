"""Which noisy draws of an image kept its class: as bits on disk, and back?

Two runs with the same seed give a sample the same noise, so draw j of the one can be set against draw j of the other.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

    from robaudit.rows import Row

MOST = 2**14
"""Draws of an image whose bits are stored: 2,732 characters."""

Bits = NDArray[np.bool_]


def packed(kept: Tensor) -> Iterator[str]:
    """The bits of each image as text: base64 of bytes, the first draw in the highest bit, zeros after the last.

    Args:
        kept: truth values (images, draws).
    """
    for row in np.packbits(kept.cpu().numpy(), axis=1):
        yield base64.b64encode(row.tobytes()).decode()


def bits_of(row: Row) -> Bits | None:
    """Which draws kept the class (draws,); None where the row does not say.

    Where all independent draws did, or none, the votes alone say so.
    """
    if row.votes is None or row.predicted >= len(row.votes) or not row.independent_votes:
        return None
    draws, count = row.draws, row.votes[row.predicted]
    if draws < count or draws < 1:
        return None
    if row.kept is not None:
        return np.unpackbits(np.frombuffer(base64.b64decode(row.kept), dtype=np.uint8), count=draws).astype(np.bool_)
    return np.full(draws, count > 0) if count in (0, draws) and draws <= MOST else None


def check_kept(row: Row) -> None:
    """Check that the bits of a row are those of its votes.

    Raises:
        ValueError: they are not: not base64, too few or too many, or another number of them is set.
    """
    if row.kept is None:
        return
    votes = row.votes or ()
    if row.predicted >= len(votes) or len(row.kept) > 4 * MOST:
        raise ValueError("kept: bits without votes of their own")
    try:
        data = base64.b64decode(row.kept, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("kept: no base64") from None
    draws = row.draws
    number = int.from_bytes(data, "big")
    if len(data) != -(-draws // 8) or number & ((1 << (-draws % 8)) - 1):
        raise ValueError(f"kept: {8 * len(data)} bits for {draws} draws")
    if number.bit_count() != votes[row.predicted]:
        raise ValueError(f"kept: {number.bit_count()} draws, the votes say {votes[row.predicted]}")
