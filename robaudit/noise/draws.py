"""Standard normal variables of each sample, seeded so that batch, order and level never change them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robaudit.noise.frames import FRAME, orthogonal_frame, patch_of
from robaudit.noise.stream import block_seed, block_size, generator, stream_key

_KEPT_BYTES = 2**26


class NormalDraws:
    """Standard normal draws that depend only on (run seed, kind, sample id, draw number) and the kind of device.

    The same z serves every level and every model, so differences between them are paired (common random numbers).

    Args:
        kind: of the noise that is made of them.
        seed: the run's seed.
        device: where the draws are made; CPU and CUDA streams differ from each other.
        dtype: of the draws.
        stream: a name for draws that are independent of the unnamed ones at every seed: a check of a run must not share its noise.
    """

    def __init__(self, kind: str, seed: int, device: torch.device, dtype: torch.dtype = torch.float32, *, stream: str = "") -> None:
        self._seed, self._device, self._dtype = seed, device, dtype
        self._name = f"{kind} {stream} stream" if stream else kind
        self._generator = generator(device)
        self._frames: OrderedDict[tuple[str, int, tuple[int, ...]], Tensor] = OrderedDict()
        self._kept = 0  # bytes of them

    def blocks(self, sample_id: str, draws: int, shape: tuple[int, ...], start: int = 0) -> Iterator[Tensor]:
        """Yield ``draws`` draws of a sample from number ``start`` on, block by block, as (n, *shape) tensors.

        Draws are made in float32 whatever the dtype, so that fp32 and fp64 runs see the same noise.
        """
        key = stream_key(self._seed, self._name, sample_id)
        size = block_size(torch.Size(shape).numel())
        for block in range(start // size, -(-(start + draws) // size)):
            z = self._block(key, block, (size, *shape))
            yield z[max(0, start - block * size) : start + draws - block * size].to(self._dtype)

    def chosen(self, wanted: Sequence[tuple[str, NDArray[np.int64]]], shape: tuple[int, ...]) -> Iterator[tuple[int, Tensor]]:
        """Yield chosen draws of several samples, block by block. Their numbers go to the device in one copy that does not block.

        Args:
            wanted: ids of samples, and the numbers of their draws, ascending.
            shape: of a draw.

        Yields:
            Which of the samples, and draws (n, *shape), in the order of their numbers.
        """
        size = block_size(torch.Size(shape).numel())
        places = torch.from_numpy(np.concatenate([numbers % size for _, numbers in wanted])).to(self._device, non_blocking=True)
        done = 0
        for which, (sample_id, numbers) in enumerate(wanted):
            key = stream_key(self._seed, self._name, sample_id)
            for group in np.split(numbers, np.flatnonzero(np.diff(numbers // size)) + 1):
                if len(group):
                    first, n = int(group[0]), len(group)
                    z = self._block(key, first // size, (size, *shape))
                    run = int(group[-1]) - first + 1 == n
                    yield which, (z[first % size :][:n] if run else z[places[done : done + n]]).to(self._dtype)
                    done += n

    def _block(self, key: int, block: int, shape: tuple[int, ...]) -> Tensor:
        self._generator.manual_seed(block_seed(key, block))
        return torch.randn(shape, generator=self._generator, device=self._device, dtype=torch.float32)

    def frames(self, sample_id: str, draws: int, shape: tuple[int, ...], start: int = 0) -> Iterator[Tensor]:
        """Like :meth:`blocks`, with draws that are coupled in frames of 48 (:func:`~robaudit.noise.frames.orthogonal_frame`).

        Their stream is a different one, so they are independent of :meth:`blocks`; images without frames get the draws of :meth:`blocks`.
        """
        if patch_of(shape) is None:
            yield from self.blocks(sample_id, draws, shape, start)
            return
        for number in range(start // FRAME, -(-(start + draws) // FRAME)):
            frame = self._frame(sample_id, number, shape)
            yield frame[max(0, start - number * FRAME) : start + draws - number * FRAME].to(self._dtype)

    def _frame(self, sample_id: str, number: int, shape: tuple[int, ...]) -> Tensor:
        """A frame, kept for the next call: the draws of an image are often continued where they stopped."""
        name = sample_id, number, shape
        if name not in self._frames:
            channels, height, width = shape
            self._generator.manual_seed(block_seed(stream_key(self._seed, f"{self._name} frames", sample_id), number))
            self._frames[name] = orthogonal_frame((channels, height, width), self._generator)
            self._kept += self._frames[name].nbytes
            while len(self._frames) > 1 and self._kept > _KEPT_BYTES:
                self._kept -= self._frames.popitem(last=False)[1].nbytes
        self._frames.move_to_end(name)
        return self._frames[name]
