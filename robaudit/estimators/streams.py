"""Random numbers for chains of every image of a chunk, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from robaudit.estimators.batch import ImageBatch
from robaudit.numerics.normal import normal_cdf

_AT_ONCE = 64


class _Taken:
    """Draws that are taken a few at a time from blocks."""

    def __init__(self, blocks: Iterator[Tensor]) -> None:
        self._blocks = blocks
        self._block: Tensor | None = None
        self._next, self._size = 0, 0  # in the block

    def take(self, number: int) -> Tensor:
        """The next draws (number, ...)."""
        parts = []
        while True:
            if self._block is not None:
                first, self._next = self._next, min(self._next + number, self._size)
                parts.append(self._block[first : self._next])
                number -= self._next - first
            if not number:
                return parts[0] if len(parts) == 1 else torch.cat(parts)
            self._block = next(self._blocks)
            self._next, self._size = 0, self._block.shape[0]


class Streams:
    """Standard normal variables and decisions of several chains of each image; rows are images x chains, chains fastest.

    They belong to the image, the purpose and their number alone: neither the batch nor the other images change them.

    Args:
        batch: the chunk.
        purpose: names the stream; other purposes have other numbers.
        chains: of each image.
        draws: how often :meth:`normals` will be called.
        decisions: how often :meth:`uniforms` or :meth:`thresholds` will be.
        images: indices into the chunk; default: all.
    """

    def __init__(
        self, batch: ImageBatch, purpose: str, chains: int, draws: int, decisions: int, images: Sequence[int] | None = None
    ) -> None:
        chosen = range(len(batch.x)) if images is None else images
        self._chains = chains
        self._normals = [_Taken(batch.normals(purpose, image, chains * draws)) for image in chosen]
        numbers = [_Taken(batch.scalars(f"{purpose} decisions", image, chains * decisions)) for image in chosen]
        self._decisions = _decisions(numbers, chains, decisions)

    def normals(self) -> Tensor:
        """Standard normal variables (rows, *latent_shape), of the type of the pixels."""
        return torch.cat([draws.take(self._chains) for draws in self._normals])

    def thresholds(self) -> Tensor:
        """Standard normal numbers (rows,), float64."""
        return next(self._decisions)[0]

    def uniforms(self) -> Tensor:
        """Uniform numbers on [0, 1] (rows,), float64."""
        return next(self._decisions)[1]


def _decisions(numbers: Sequence[_Taken], chains: int, decisions: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Standard normal numbers z and Phi(z) (rows,), float64, for one decision after the other; some are taken at once."""
    for first in range(0, decisions, _AT_ONCE):
        some = min(_AT_ONCE, decisions - first)
        z = torch.stack([one.take(some * chains) for one in numbers]).double().unflatten(1, (some, chains))
        z = z.transpose(0, 1).flatten(1)
        yield from zip(z, normal_cdf(z), strict=True)


class FlatStreams(Streams):
    """The same, with the normal variables of a row in one dimension."""

    def normals(self) -> Tensor:
        """Standard normal variables (rows, d)."""
        return super().normals().flatten(1)
