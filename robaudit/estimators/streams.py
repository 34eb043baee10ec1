"""Random numbers for the chains of a chunk's images, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from robaudit.estimators.batch import ImageBatch
from robaudit.numerics.normal import normal_cdf

_AT_ONCE = 64


class Streams:
    """Standard normal variables and decisions of several chains of each image; rows are images x chains, chains fastest.

    They depend only on the image, the purpose and their index: neither the batch nor the other images change them.

    Args:
        batch: the chunk.
        purpose: names the stream; each purpose has its own numbers.
        chains: of each image.
        draws: how often :meth:`normals` will be called.
        decisions: how often :meth:`uniforms` or :meth:`thresholds` will be called.
        images: indices into the chunk; default: all.
    """

    def __init__(
        self, batch: ImageBatch, purpose: str, chains: int, draws: int, decisions: int, images: Sequence[int] | None = None
    ) -> None:
        chosen = range(len(batch.x)) if images is None else images
        self._normals = [_pieces(batch.normals(purpose, image, chains * draws), chains) for image in chosen]
        numbers = [_pieces(batch.scalars(f"{purpose} decisions", image, chains * decisions), chains * _AT_ONCE) for image in chosen]
        self._decisions = _decisions(numbers, chains)

    def normals(self) -> Tensor:
        """Standard normal variables (rows, *latent_shape), of the type of the pixels."""
        return torch.cat([next(draws) for draws in self._normals])

    def thresholds(self) -> Tensor:
        """Standard normal numbers (rows,), float64."""
        return next(self._decisions)[0]

    def uniforms(self) -> Tensor:
        """Uniform numbers on [0, 1] (rows,), float64."""
        return next(self._decisions)[1]


def _pieces(blocks: Iterator[Tensor], size: int) -> Iterator[Tensor]:
    """Regroup blocks of draws into pieces of this size; the last may be smaller."""
    parts, missing = list[Tensor](), size
    for block in blocks:
        rest = block
        while len(rest):
            parts.append(rest[:missing])
            missing, rest = missing - len(parts[-1]), rest[missing:]
            if not missing:
                yield parts[0] if len(parts) == 1 else torch.cat(parts)
                parts, missing = [], size
    if parts:
        yield torch.cat(parts)


def _decisions(numbers: Sequence[Iterator[Tensor]], chains: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Standard normal numbers z and Phi(z) (rows,), float64, decision by decision; computed several at a time."""
    for pieces in zip(*numbers, strict=True):
        z = torch.stack(pieces).double().unflatten(1, (-1, chains)).transpose(0, 1).flatten(1)
        yield from zip(z, normal_cdf(z), strict=True)
