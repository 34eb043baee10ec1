"""Random numbers for the chains of a chunk's images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from robaudit.engine.batch import ImageBatch
from robaudit.numerics.normal import normal_cdf


class Streams:
    """Standard normal variables and decisions of several chains of each image; rows are images x
    chains, chains fastest.

    They depend only on the image, the purpose and their index: neither the batch nor the other
    images change them.

    Args:
        batch: the chunk.
        purpose: names the stream; each purpose has its own numbers.
        chains: of each image.
        draws: how often :meth:`normals` will be called.
        decisions: how often :meth:`uniforms` will be called.
        images: indices into the chunk; default: all.
    """

    def __init__(
        self,
        batch: ImageBatch,
        purpose: str,
        chains: int,
        draws: int,
        decisions: int,
        images: Sequence[int] | None = None,
    ) -> None:
        chosen = range(len(batch.x)) if images is None else images
        self._normals = [
            _pieces(batch.normals(purpose, image, chains * draws), chains) for image in chosen
        ]
        self._decisions = [
            _pieces(batch.scalars(f"{purpose} decisions", image, chains * decisions), chains)
            for image in chosen
        ]

    def normals(self) -> Tensor:
        """Standard normal variables (rows, *latent_shape), of the type of the pixels."""
        return torch.cat([next(draws) for draws in self._normals])

    def uniforms(self) -> Tensor:
        """Uniform numbers on [0, 1] (rows,), float64."""
        return normal_cdf(torch.cat([next(numbers) for numbers in self._decisions]).double())


def _pieces(blocks: Iterator[Tensor], size: int) -> Iterator[Tensor]:
    """Regroup blocks of draws into pieces of this size; the last may be smaller."""
    parts = list[Tensor]()
    missing = size
    for block in blocks:
        rest = block
        while len(rest):
            parts.append(rest[:missing])
            missing, rest = missing - len(parts[-1]), rest[missing:]
            if not missing:
                yield parts[0] if len(parts) == 1 else torch.cat(parts)
                parts = []
                missing = size
    if parts:
        yield torch.cat(parts)
