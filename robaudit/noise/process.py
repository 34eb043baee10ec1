"""A noise of a run: the map with its normal variables, seeded so that batch, order and level never
change them."""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robaudit.errors import SampleError, SpecError
from robaudit.files import file_sha256
from robaudit.levels import INPUT, NoiseLevel, noise_label
from robaudit.noise.noise import AdditiveNoise, Noise, Shape, shape_of
from robaudit.noise.orthogonal import BLOCK, orthogonal_block, patch_of
from robaudit.plugins import BrokenContractError, blaming, is_ours, shown

# Of the orthogonal blocks that a process caches: 64 MiB, two blocks of 3 x 224 x 224 pixels.
_CACHED_BYTES = 2**26
_MASK32 = 0xFFFFFFFF
_CPU = torch.device("cpu")
_GROUP = 16  # normal variables

# Most draws in a block, and normal variables in a block: on the CPU 256 KiB of float32, for its
# caches; on CUDA, where each block is a launch, 32 MiB.
_MOST_DRAWS = 256
_VALUES_ON_CPU = 2**16
_VALUES_ON_CUDA = 2**23


class Photo(Protocol):
    """A decoded image file."""

    @property
    def pixels(self) -> Tensor:
        """Its pixels in [0, 1], before resize and crop, float64 (channels, height, width)."""
        ...

    def prepared(self, noisy: Tensor) -> Tensor:
        """The network's input of noisy copies (n, channels, height, width) of the file, float64 on
        the CPU."""
        ...


class Photos(Protocol):
    """The image files of a data set."""

    def read(self, sample_id: str) -> Photo:
        """The decoded file of a sample.

        Raises:
            SampleError: it cannot be read.
        """
        ...


@dataclass(frozen=True)
class NoiseProcess:
    """A noise of a run, with standard normal draws that depend only on (run seed, kind, sample id,
    draw number) and the kind of device.

    The same draws z serve every level and every model, so differences between them are paired
    (common random numbers). The map may be a plugin's: its methods are called here, where an
    exception is given the name of the plugin.

    Attributes:
        noise: the map from normal variables to pixels, with its options.
        kind: the plugin's registered name, which seeds the draws.
        seed: the run's seed.
        device: where the draws are made; CPU and CUDA streams differ from each other.
        dtype: of the draws.
        levels: of the run, in the spec's order.
        stream: a name for draws that are independent of the unnamed ones at every seed. A check of
            a run must not share its noise.
        photos: the image files, if the noise is on them.
    """

    noise: Noise
    kind: str
    seed: int = 0
    device: torch.device = _CPU
    dtype: torch.dtype = torch.float32
    levels: tuple[NoiseLevel, ...] = ()
    stream: str = ""
    photos: Photos | None = None

    @property
    def label(self) -> str:
        """The name of the noise in the results."""
        return noise_label(self.noise.name or self.kind, self.noise.at)

    @property
    def digests(self) -> dict[str, str]:
        """sha256 of the files behind the noise, by name."""
        return {path.name: file_sha256(path) or "" for path in self.noise.files}

    def seeded(
        self,
        seed: int,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        *,
        stream: str = "",
    ) -> NoiseProcess:
        """The same noise with other draws."""
        return replace(self, seed=seed, device=device, dtype=dtype, stream=stream)

    def on_input(self) -> NoiseProcess:
        """The same noise on whatever pixels it is given."""
        return replace(self, noise=self.noise.model_copy(update={"at": INPUT}), photos=None)

    def blocks(self, sample_id: str, draws: int, shape: Shape, start: int = 0) -> Iterator[Tensor]:
        """Yield ``draws`` draws of a sample from number ``start`` on, block by block, as (n,
        *latent_shape) tensors.

        Draws are made in float32 for any dtype, so that fp32 and fp64 runs see the same noise.

        Args:
            sample_id: of the image; before an id, a purpose gives other draws.
            draws: number of draws.
            shape: channels, height, width of the image.
            start: number of the first draw.
        """
        return self._blocks(sample_id, draws, self._latent_shape(sample_id, shape), start)

    def scalars(self, sample_id: str, draws: int) -> Iterator[Tensor]:
        """Like :meth:`blocks`, of single numbers (n,)."""
        return (block[:, 0] for block in self._blocks(sample_id, draws, (1,), 0))

    def _blocks(
        self,
        sample_id: str,
        draws: int,
        shape: tuple[int, ...],
        start: int,
    ) -> Iterator[Tensor]:
        """:meth:`blocks` for draws of this shape."""
        key = self._key(sample_id)
        size = self._block_size(shape)
        values = torch.Size(shape).numel()
        for number in _blocks_with(start, draws, size):
            within = _draws_within(number, start, draws, size)
            # A draw does not depend on the draws asked for: what follows it in its block is left
            # out only where that changes no bit.
            filled = _fewest_filled(within.stop, size, values, self.device)
            block = self._latent_block(key, number, (filled, *shape))
            yield block[within].to(self.dtype)

    def chosen(
        self, wanted: Sequence[tuple[str, NDArray[np.int64]]], shape: Shape
    ) -> Iterator[tuple[int, Tensor]]:
        """Yield draws of several samples by their numbers, block by block.

        Args:
            wanted: ids of samples, and the numbers of their draws, ascending.
            shape: of the image.

        Yields:
            The place of the sample in ``wanted``, and draws (n, *latent_shape), in the order of
            their numbers.
        """
        latent = self.noise.latent_shape(shape)
        size = self._block_size(latent)
        # The places of all draws within their blocks go to the device in a single non-blocking
        # copy; one for each block would wait for the device each time.
        places_in_block = np.concatenate([numbers % size for _, numbers in wanted])
        places = torch.from_numpy(places_in_block).to(self.device, non_blocking=True)
        done = 0
        for sample, (sample_id, numbers) in enumerate(wanted):
            key = self._key(sample_id)
            new_block = np.flatnonzero(np.diff(numbers // size)) + 1
            for group in np.split(numbers, new_block):
                if len(group) == 0:  # no draws of this sample
                    continue
                first = int(group[0])
                last = int(group[-1])
                n = len(group)
                block = self._latent_block(key, first // size, (size, *latent))
                if last - first + 1 == n:  # consecutive: a view instead of a copy
                    draws = block[first % size :][:n]
                else:
                    draws = block[places[done : done + n]]
                yield sample, draws.to(self.dtype)
                done += n

    def orthogonal_blocks(
        self,
        sample_id: str,
        draws: int,
        shape: Shape,
        start: int = 0,
    ) -> Iterator[Tensor]:
        """Like :meth:`blocks`, with draws that are coupled in blocks of 48
        (:func:`~robaudit.noise.orthogonal.orthogonal_block`).

        Their stream is a different one, so they are independent of :meth:`blocks`; images without
        orthogonal blocks, and files, get the draws of :meth:`blocks`.
        """
        latent = self.noise.latent_shape(shape)
        if self.noise.on_file or patch_of(latent) is None:
            yield from self.blocks(sample_id, draws, shape, start)
            return
        for number in _blocks_with(start, draws, BLOCK):
            block = self._orthogonal_block(sample_id, number, latent)
            yield block[_draws_within(number, start, draws, BLOCK)].to(self.dtype)

    def _orthogonal_block(self, sample_id: str, number: int, shape: tuple[int, ...]) -> Tensor:
        """A block, cached for the next call: the draws of an image often continue where they
        stopped."""
        address = sample_id, number, shape
        if address not in self._orthogonal:
            channels, height, width = shape
            # The word frames is part of the seed: another one would change every draw.
            key = stream_key(self.seed, f"{self._stream_name} frames", sample_id)
            self._generator.manual_seed(block_seed(key, number))
            block = orthogonal_block((channels, height, width), self._generator)
            self._orthogonal[address] = block
            self._forget_oldest_blocks()
        self._orthogonal.move_to_end(address)
        return self._orthogonal[address]

    def _forget_oldest_blocks(self) -> None:
        """Drop the blocks used longest ago until the cache is small enough, or holds one."""
        cached_bytes = sum(block.nbytes for block in self._orthogonal.values())
        while len(self._orthogonal) > 1 and cached_bytes > _CACHED_BYTES:
            _, oldest = self._orthogonal.popitem(last=False)
            cached_bytes -= oldest.nbytes

    def pool(self, ids: Sequence[str], shape: Shape, most_bytes: int) -> DrawPool | None:
        """The draws of :meth:`blocks` for many samples, cached on a CUDA device; None on the CPU,
        or if the map takes a single level."""
        if not self.noise.by_row or self.device.type == "cpu":
            return None
        latent = self.noise.latent_shape(shape)
        keys = [self._key(sample_id) for sample_id in ids]
        return DrawPool(keys, latent, self._block_size(latent), most_bytes, self)

    def fill(self, block: Tensor, key: int, number: int) -> Tensor:
        """Fill a float32 block of draws: block ``number`` of the stream of this key."""
        # Seeded for each block: its draws do not depend on the blocks that were filled before.
        self._generator.manual_seed(block_seed(key, number))
        return block.normal_(generator=self._generator)

    def _latent_block(self, key: int, number: int, shape: tuple[int, ...]) -> Tensor:
        """Block ``number`` of the stream of this key, (draws, *latent_shape), float32."""
        block = torch.empty(shape, device=self.device, dtype=torch.float32)
        return self.fill(block, key, number)

    def _block_size(self, shape: tuple[int, ...]) -> int:
        return block_size(torch.Size(shape).numel(), self.device)

    def _key(self, sample_id: str) -> int:
        return stream_key(self.seed, self._stream_name, sample_id)

    def _latent_shape(self, sample_id: str, shape: Shape) -> tuple[int, ...]:
        """The shape of z for a sample whose input has this shape."""
        if self.noise.on_file:
            shape = shape_of(self._photo(sample_id)[1])
        return self.noise.latent_shape(shape)

    def _photo(self, sample_id: str) -> tuple[Photo, Tensor]:
        """The decoded file of a sample, and its pixels on the device; the last one is cached.

        Raises:
            SampleError: it cannot be read, or the noise does not fit its shape.
        """
        if self.photos is None:
            raise ValueError(f"the noise {self.label} is on files, and the process has none")
        if sample_id not in self._cached_photo:
            photo = self.photos.read(sample_id)
            try:
                self.noise.check(shape_of(photo.pixels), [at.number for at in self.levels])
            except SpecError as error:
                where = f"noise {self.label}, the file of {sample_id!r}: {error.where}"
                raise SampleError(where, error.what, error.remedy) from error
            self._cached_photo.clear()
            self._cached_photo[sample_id] = photo, photo.pixels.to(self.device, self.dtype)
        return self._cached_photo[sample_id]

    @property
    def _stream_name(self) -> str:
        """The kind with its place, and the stream if it has a name: the part of a seed that a
        process decides."""
        kind = noise_label(self.kind, self.noise.at)
        return f"{kind} {self.stream} stream" if self.stream else kind

    @cached_property
    def _cached_photo(self) -> dict[str, tuple[Photo, Tensor]]:
        """The file that was used last, by sample id."""
        return {}

    @cached_property
    def _orthogonal(self) -> OrderedDict[tuple[str, int, tuple[int, ...]], Tensor]:
        """Cached orthogonal blocks by sample, number and shape, the last used last."""
        return OrderedDict()

    @cached_property
    def _generator(self) -> torch.Generator:
        # Not the global one: a user's own random numbers are never touched.
        return torch.Generator(device=self.device)

    def check(self, sample_id: str, shape: Shape, labels: Iterable[tuple[str, int]]) -> None:
        """Check the noise against the images and their labels.

        Args:
            sample_id: of a sample, whose file is checked by noise on files.
            shape: channels, height, width of the images.
            labels: sample ids and labels (-1: none), if known; read only by noises with labels of
                their own.

        Raises:
            SpecError, DataError: they do not fit.
        """
        with self._blaming():
            if not self.noise.on_file:
                self.noise.check(shape, [at.number for at in self.levels])
            self.noise.check_labels(labels)
            # Raises here, under the plugin's name, if a plugin gives no shape.
            torch.Size(self._latent_shape(sample_id, shape))

    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str]) -> Tensor:
        """:meth:`Noise.noisy <robaudit.noise.noise.Noise.noisy>`; noise on files takes one sample,
        and reads its file instead of x."""
        with self._blaming():
            if self.noise.on_file:
                (sample_id,) = ids
                return self._prepared(sample_id, z, level).to(x)
            pixels = self.noise.noisy(x, z, level, ids=ids)
            return self._valid(pixels, "noisy", (len(z), *x.shape[1:]), x.dtype)

    def _prepared(self, sample_id: str, z: Tensor, level: float) -> Tensor:
        """Noisy copies of a file, resized and cropped: float64 on the CPU (n, channels, height,
        width)."""
        photo, pixels = self._photo(sample_id)
        noisy = self.noise.noisy(pixels[None], z, level, ids=[sample_id])
        return photo.prepared(self._valid(noisy, "noisy", (len(z), *pixels.shape), pixels.dtype))

    def amplitude(self, level: float, shape: Shape) -> float:
        """a(level) of additive noise."""
        with self._blaming():
            return self.additive.amplitude(level, shape)

    def gram(self, gradients: Tensor, x: Tensor) -> Tensor:
        """:meth:`AdditiveNoise.gram <robaudit.noise.noise.AdditiveNoise.gram>` of additive
        noise."""
        with self._blaming():
            products = self.additive.gram(gradients, x)
            images, margins = gradients.shape[:2]
            return self._valid(products, "gram", (images, margins, margins), torch.float64)

    @property
    def additive(self) -> AdditiveNoise:
        """The map, for estimators that use its covariance.

        Raises:
            ValueError: it has no covariance; estimators that need one declare it.
        """
        if not isinstance(self.noise, AdditiveNoise):
            # A broken contract of an estimator, and not a wrong type.
            raise ValueError(  # noqa: TRY004
                "the noise has no known covariance; declare Need.COVARIANCE"
            )
        return self.noise

    def _blaming(self) -> AbstractContextManager[None]:
        """Exceptions in this context name the plugin."""
        return blaming(f"noise {self.label}", type(self.noise))

    def _valid(
        self,
        result: Tensor,
        method: str,
        shape: tuple[int, ...],
        dtype: torch.dtype,
    ) -> Tensor:
        """The result of a method of the noise.

        Raises:
            BrokenContractError: a plugin returned anything but a finite tensor of this shape and
                type.
        """
        # Our own noises are tested; the check would cost a synchronisation on CUDA.
        if is_ours(type(self.noise)):
            return result
        if not isinstance(result, Tensor) or result.shape != shape or result.dtype != dtype:
            raise BrokenContractError(
                f"{method}() returned {shown(result)}, not a {dtype} tensor of shape {shape}"
            )
        if not result.isfinite().all():
            raise BrokenContractError(f"{method}() returned values that are not finite")
        return result


class DrawPool:
    """The draws of several samples on a CUDA device, where choosing many takes one launch.

    Args:
        keys: of the samples' streams.
        shape: of a draw.
        size: draws in a block.
        most_bytes: largest size of the pool.
        draws: fills the blocks.
    """

    def __init__(
        self,
        keys: Sequence[int],
        shape: tuple[int, ...],
        size: int,
        most_bytes: int,
        draws: NoiseProcess,
    ) -> None:
        self._keys = keys
        self._shape = shape
        self._size = size
        self._process = draws
        bytes_of_draw = 4 * torch.Size(shape).numel()  # float32
        self._most_draws = most_bytes // (len(keys) * bytes_of_draw)
        # Blocks of each sample that are filled; the pool has room for more.
        self._filled = [0] * len(keys)
        self._pool: Tensor | None = None  # (samples, draws, *shape)

    def with_draws(self, samples: Sequence[int], draws: int, like: Tensor) -> Tensor | None:
        """The pool (samples, at least ``draws``, *shape), float32, with the draws of these samples
        filled in; None if it grows too large.

        Args:
            samples: indices of the samples needed.
            draws: number of draws of each.
            like: a tensor on the device.
        """
        blocks = -(-draws // self._size)
        room = blocks * self._size
        if self._pool is None or self._pool.shape[1] < room:
            if room > self._most_draws:
                return None
            before = self._pool
            self._pool = like.new_empty((len(self._keys), room, *self._shape), dtype=torch.float32)
            if before is not None:
                self._pool[:, : before.shape[1]] = before
        for sample in samples:
            for number in range(self._filled[sample], blocks):
                block = self._pool[sample, number * self._size : (number + 1) * self._size]
                self._process.fill(block, self._keys[sample], number)
            self._filled[sample] = max(self._filled[sample], blocks)
        return self._pool


def _blocks_with(start: int, draws: int, size: int) -> range:
    """Numbers of the blocks of ``size`` draws with any of ``draws`` draws from ``start`` on."""
    return range(start // size, -(-(start + draws) // size))


def _draws_within(number: int, start: int, draws: int, size: int) -> slice:
    """The part of block ``number`` that is among ``draws`` draws from ``start`` on."""
    first_of_block = number * size
    return slice(max(0, start - first_of_block), min(size, start + draws - first_of_block))


def _fewest_filled(draws: int, size: int, values: int, device: torch.device) -> int:
    """The fewest draws to fill so that the first ``draws`` of a block have their bits.

    Args:
        draws: that are needed.
        size: of the block, in draws.
        values: normal variables of a draw.
        device: where the draws are made.
    """
    if device.type != "cpu":
        return size  # there the number of values orders the draws
    # torch makes normal variables on the CPU in groups, so that a part of whole groups is enough.
    whole_groups = _GROUP // math.gcd(values, _GROUP)
    fewest = -(-draws // whole_groups) * whole_groups
    if fewest >= size or not _is_beginning(fewest * values, size * values):
        return size
    return fewest


@lru_cache(maxsize=1024)
def _is_beginning(values: int, of: int) -> bool:
    """Whether so many normal variables of a seed are the first of more of them, in this version of
    torch."""
    generator = torch.Generator()
    generator.manual_seed(0)
    few = torch.empty(values).normal_(generator=generator)
    generator.manual_seed(0)
    many = torch.empty(of).normal_(generator=generator)
    return torch.equal(few, many[:values])


def stream_key(seed: int, kind: str, sample_id: str) -> int:
    """64 bits that identify the noise of one sample: blake2b of seed, kind and id (never of the
    level, batch or order)."""
    # Ids, kinds and numbers contain no unit separator, so different streams have different texts.
    text = f"{seed}\x1f{kind}\x1f{sample_id}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def block_seed(key: int, block: int) -> int:
    """The generator seed of one block of draws of a sample.

    torch's CPU generator uses only the low 32 bits of a seed. They are a permutation of the block
    number that the key chooses (murmur3's finaliser twice, each half of the key mixed in before one
    of them): no two of a sample's first 2^32 blocks share a stream, and two samples share single
    blocks only by coincidence (2^-32 a pair of blocks), never a run of them. The high 32 bits, used
    on CUDA, are the key's.
    """
    key_low = key & _MASK32
    key_high = key >> 32
    low = _mix(_mix((block & _MASK32) ^ key_low) ^ key_high)
    # 63 bits: not negative as an int64.
    return (key_high << 32 | low) & 0x7FFFFFFFFFFFFFFF


def _mix(x: int) -> int:
    """murmur3's finaliser: a bijection of 32 bits in which every bit depends on every other.

    Source: Appleby, MurmurHash3 (fmix32).
    """
    x ^= x >> 16
    x = (x * 0x85EBCA6B) & _MASK32
    x ^= x >> 13
    x = (x * 0xC2B2AE35) & _MASK32
    return x ^ (x >> 16)


def block_size(values_per_draw: int, device: torch.device = _CPU) -> int:
    """Draws in a block, 1 to 256: a fixed function of the image size and the kind of device.

    A block has about 2^16 values on the CPU, for its caches, and 2^23 on CUDA, where a block is a
    launch.
    """
    values = _VALUES_ON_CPU if device.type == "cpu" else _VALUES_ON_CUDA
    return max(1, min(_MOST_DRAWS, values // max(1, values_per_draw)))
