"""Standard normal variables of each sample, seeded so that batch, order and level never change them."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robaudit.noise.frames import FRAME, orthogonal_frame, patch_of

_KEPT_BYTES = 2**26
_MASK32 = 0xFFFFFFFF
_CPU = torch.device("cpu")


class NormalDraws:
    """Standard normal draws that depend only on (run seed, kind, sample id, draw number) and the kind of device.

    The same z serves every level and every model, so differences between them are paired (common random numbers).

    Args:
        kind: the kind of noise they are used for.
        seed: the run's seed.
        device: where the draws are made; CPU and CUDA streams differ from each other.
        dtype: of the draws.
        stream: a name for draws independent of the unnamed ones at every seed: a check of a run must not share its noise.

    Attributes:
        device: where the draws are made.
    """

    def __init__(self, kind: str, seed: int, device: torch.device, dtype: torch.dtype = torch.float32, *, stream: str = "") -> None:
        self._seed, self.device, self._dtype = seed, device, dtype
        self._name = f"{kind} {stream} stream" if stream else kind
        self._generator = torch.Generator(device=device)  # of its own: the global one is never touched
        self._frames: OrderedDict[tuple[str, int, tuple[int, ...]], Tensor] = OrderedDict()
        self._kept = 0  # bytes of draws

    def blocks(self, sample_id: str, draws: int, shape: tuple[int, ...], start: int = 0) -> Iterator[Tensor]:
        """Yield ``draws`` draws of a sample from number ``start`` on, block by block, as (n, *shape) tensors.

        Draws are made in float32 for any dtype, so that fp32 and fp64 runs see the same noise.
        """
        key = stream_key(self._seed, self._name, sample_id)
        size = self._block_size(shape)
        for block in range(start // size, -(-(start + draws) // size)):
            z = self._block(key, block, (size, *shape))
            yield z[max(0, start - block * size) : start + draws - block * size].to(self._dtype)

    def chosen(self, wanted: Sequence[tuple[str, NDArray[np.int64]]], shape: tuple[int, ...]) -> Iterator[tuple[int, Tensor]]:
        """Yield chosen draws of several samples, block by block. Their numbers go to the device in one non-blocking copy.

        Args:
            wanted: ids of samples, and the numbers of their draws, ascending.
            shape: of a draw.

        Yields:
            Which of the samples, and draws (n, *shape), in the order of their numbers.
        """
        size = self._block_size(shape)
        places = torch.from_numpy(np.concatenate([numbers % size for _, numbers in wanted])).to(self.device, non_blocking=True)
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

    def _block_size(self, shape: tuple[int, ...]) -> int:
        return block_size(torch.Size(shape).numel(), self.device)

    def pool(self, ids: Sequence[str], shape: tuple[int, ...], most_bytes: int) -> DrawPool:
        """A cache of the draws of several samples on the device."""
        return DrawPool([stream_key(self._seed, self._name, one) for one in ids], shape, self._block_size(shape), most_bytes, self)

    def _block(self, key: int, block: int, shape: tuple[int, ...]) -> Tensor:
        return self.fill(torch.empty(shape, device=self.device, dtype=torch.float32), key, block)

    def fill(self, block: Tensor, key: int, number: int) -> Tensor:
        """Fill a float32 block of draws: block ``number`` of the stream of this key."""
        self._generator.manual_seed(block_seed(key, number))
        return block.normal_(generator=self._generator)

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
        """A frame, cached for the next call: the draws of an image often continue where they stopped."""
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


class DrawPool:
    """The draws of several samples on a CUDA device, where choosing many takes one launch.

    Args:
        keys: of the samples' streams.
        shape: of a draw.
        size: draws in a block.
        most_bytes: largest size of the pool.
        draws: fills the blocks.
    """

    def __init__(self, keys: Sequence[int], shape: tuple[int, ...], size: int, most_bytes: int, draws: NormalDraws) -> None:
        self._keys, self._shape, self._size, self._draws = keys, shape, size, draws
        self._most = most_bytes // (4 * len(keys) * torch.Size(shape).numel())
        self._filled = [0] * len(keys)  # blocks of each sample
        self._kept: Tensor | None = None  # (samples, draws, *shape)

    def holding(self, samples: Sequence[int], draws: int, like: Tensor) -> Tensor | None:
        """The pool (samples, at least ``draws``, *shape), float32, with the draws of these samples filled in; None if it grows too large.

        Args:
            samples: indices of the samples needed.
            draws: number of draws of each.
            like: a tensor on the device.
        """
        blocks = -(-draws // self._size)
        if self._kept is None or self._kept.shape[1] < blocks * self._size:
            before, wanted = self._kept, blocks * self._size
            if wanted > self._most:
                return None
            self._kept = like.new_empty((len(self._keys), wanted, *self._shape), dtype=torch.float32)
            if before is not None:
                self._kept[:, : before.shape[1]] = before
        for sample in samples:
            for block in range(self._filled[sample], blocks):
                self._draws.fill(self._kept[sample, block * self._size : (block + 1) * self._size], self._keys[sample], block)
            self._filled[sample] = max(self._filled[sample], blocks)
        return self._kept


def stream_key(seed: int, kind: str, sample_id: str) -> int:
    """64 bits that identify the noise of one sample: blake2b of seed, kind and id (never of the level, batch or order)."""
    text = f"{seed}\x1f{kind}\x1f{sample_id}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def block_seed(key: int, block: int) -> int:
    """The generator seed of one block of draws of a sample.

    torch's CPU generator uses only the low 32 bits of a seed. They are a permutation of the block number that the key chooses
    (murmur3's finaliser twice, each half of the key mixed in before one of them): no two of a sample's first 2^32 blocks share
    a stream, and two samples share single blocks only by coincidence (2^-32 a pair of blocks), never a run of them.
    The high 32 bits, used on CUDA, are the key's.
    """
    low = _mix(_mix((block & _MASK32) ^ (key & _MASK32)) ^ (key >> 32))
    return ((key >> 32) << 32 | low) & 0x7FFFFFFFFFFFFFFF


def _mix(x: int) -> int:
    """murmur3's finaliser: a bijection of 32 bits in which every bit depends on every other."""
    x ^= x >> 16
    x = (x * 0x85EBCA6B) & _MASK32
    x ^= x >> 13
    x = (x * 0xC2B2AE35) & _MASK32
    return x ^ (x >> 16)


def block_size(values_per_draw: int, device: torch.device = _CPU) -> int:
    """Draws in a block, 1 to 256: a fixed function of the image size and the kind of device.

    A block has about 2^16 values on the CPU, for its caches, and 2^23 on CUDA, where a block is a launch.
    """
    values = 2**16 if device.type == "cpu" else 2**23
    return max(1, min(256, values // max(1, values_per_draw)))
