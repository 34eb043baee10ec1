"""Random numbers for the chains of a chunk's images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from robaudit.engine.batch import ImageBatch
from robaudit.numerics.normal import normal_cdf


class Streams:
    """Standard normal variables and decisions of several chains of each image.

    Rows are images x chains, chains fastest. The numbers depend only on the image, the purpose and
    their index, not on the batch or other images.

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
        # Phi of a normal variable is uniform: the generator of an image draws normal ones.
        return normal_cdf(torch.cat([next(numbers) for numbers in self._decisions]).double())


def _pieces(blocks: Iterator[Tensor], size: int) -> Iterator[Tensor]:
    """Regroup blocks of draws into pieces of this size; the last may be smaller."""
    parts = list[Tensor]()
    missing = size
    for block in blocks:
        rest = block
        while len(rest):
            part = rest[:missing]
            rest = rest[missing:]
            parts.append(part)
            missing -= len(part)
            if not missing:
                # A piece inside a block is a view: most blocks need no copy.
                yield part if len(parts) == 1 else torch.cat(parts)
                parts = []
                missing = size
    if parts:
        yield torch.cat(parts)
