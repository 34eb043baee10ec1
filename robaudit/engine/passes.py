"""All passes through the network (clean, noisy and differentiated) in full batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from robaudit.levels import GAUSSIAN, NoiseLevel
from robaudit.memory import extra_peak, free_bytes
from robaudit.models.logits import LogitModel
from robaudit.noise.noise import shape_of
from robaudit.noise.process import DrawPool, NoiseProcess

# Rows of a pass: see the rule in :class:`Engine`. 3 * 2^16 values are 64 images of 3 x 32 x 32.
_CPU_VALUES = 3 * 2**16
_CUDA_VALUES = 3 * 2**20
_CPU_ROWS = 128
_CUDA_ROWS = 4096
_FEWEST_ROWS = 8
# Rows of a pass on the CPU with a single gradient for each row: the fastest of 16 to 128 rows on
# four networks, up to 1.5 times as fast as a quarter of a forward pass.
_SINGLE_ROWS = 64
# Batches are padded to multiples of it: the fastest sizes for networks, and with fewer rows a
# network on the CPU rounds a row differently.
_TAIL = 8
_GRADIENT_BYTES = 2**28  # most bytes of the gradients in one pass, where memory is not measured
# Share of the free memory for a pass; the rest is for the chunk, its noise and fragmentation.
_PASS_SHARE = 0.25
# A batch may take more than the sum of its rows, as libraries change algorithm with the size.
_CAUTION = 4
_POOL_SHARE = 0.125  # share of the free memory of a CUDA device for draws that are reused
_COPIES = 3  # bytes of gradients in float32 and of their float64 copy, relative to float32 alone


@dataclass(frozen=True, slots=True)
class NoisyRows:
    """The rows of a batch of noisy copies.

    Attributes:
        image: image of each row, as an index into the chunk (n,).
        draw: number of the draw in each row (n,).
    """

    image: Tensor
    draw: Tensor


@dataclass(frozen=True, slots=True)
class NoisyBatch(NoisyRows):
    """Noisy copies of a chunk's images; valid until the next batch is requested.

    Attributes:
        x: pixels of the copies (n, channels, height, width).
        padded: x, padded with copies of its last row to a multiple of 8 rows.
    """

    x: Tensor
    padded: Tensor


_Write = Callable[[int, float, Tensor, Tensor], object]
"""Makes noisy copies of one image: from its index, the noise level and normal variables (n,
*latent_shape), into a tensor (n, channels, height, width)."""


class Fit(NamedTuple):
    """The largest passes that fit into the memory of a CUDA device.

    Attributes:
        rows: rows of a forward pass, as measured.
        gradient_rows: rows of a differentiated pass, as measured.
        gradient_bytes: bytes of the gradients of a pass.
    """

    rows: int
    gradient_rows: int
    gradient_bytes: int


class Engine:
    """Runs a network over clean and noisy images in batches of a fixed size.

    On the CPU the batch size is a fixed function of the image shape, so that timing never changes a
    byte: about 3 * 2^16 values, 8 to 128 rows. More would overflow the caches, as measured on
    convolutional networks. CUDA takes as many rows as fit, up to 4,096.

    Args:
        model: pixels -> logits.
        noises: the run's noises by label, and under None the random numbers of estimators without
            noise; a single process is the run's isotropic Gaussian noise.
        classes: number of logits.
        batch_size: rows of a pass; default: by the rule above.
        noisy: the model for noisy forward passes without gradients, in a lower precision; default:
            the model.
        fit: the passes that fit into the memory of a CUDA device; None where they are not measured,
            and always on the CPU, where the rule does not depend on memory.

    Attributes:
        model, noises, classes, noisy: as given.
    """

    def __init__(
        self,
        model: LogitModel,
        noises: NoiseProcess | Mapping[Any, NoiseProcess],
        classes: int,
        batch_size: int | None = None,
        *,
        noisy: LogitModel | None = None,
        fit: Fit | None = None,
    ) -> None:
        self.model = model
        self.classes = classes
        self.noises: dict[str | None, NoiseProcess] = (
            {GAUSSIAN: noises} if isinstance(noises, NoiseProcess) else dict(noises)
        )
        self.noisy = noisy or model
        self._as_loaded = self.noisy
        self._batch_size = batch_size
        self._most_rows = None if fit is None else fit.rows
        self._most_gradient_rows = None if fit is None else fit.gradient_rows
        self._gradient_bytes = _GRADIENT_BYTES if fit is None else fit.gradient_bytes
        # After a halving, memory decides: no rule may make the batches larger again.
        self._halved = False

    @contextmanager
    def counting(self, passed: Callable[[int], None]) -> Iterator[None]:
        """Report the rows of every pass through the network within the block.

        A differentiated row counts threefold: a backward pass takes about as long as two forward
        passes.
        """

        def report(_: nn.Module, arguments: tuple[Tensor, ...], __: object) -> None:
            differentiated = torch.is_grad_enabled() and arguments[0].requires_grad
            passed(len(arguments[0]) * (1 + 2 * differentiated))

        # Copies of a model that clip or round share its network and its hooks: one hook for each
        # network, or its passes would count twice.
        models = {id(model.network): model for model in self.models}
        handles = [model.register_forward_hook(report) for model in models.values()]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @property
    def models(self) -> list[LogitModel]:
        """The model, and the model for noisy passes if it differs."""
        return [self.model] if self.noisy is self.model else [self.model, self.noisy]

    def run_in(self, model: LogitModel, rows: int) -> None:
        """Run noisy passes through another form of the network, with this many rows in a pass."""
        self._as_loaded = self.noisy
        self.noisy = model
        self._batch_size = rows

    def batch_sizes(self, shape: Sequence[int], *, gradients: bool = False) -> list[int]:
        """The possible batch sizes, ascending, of forward or differentiated passes over images of
        this shape."""
        most = self.steady(self.gradient_rows(shape, 1)) if gradients else self.rows(shape)
        # Incomplete batches are padded to a multiple of 8 rows, a full one has the most rows.
        return [*range(_TAIL, most, _TAIL), most]

    def rows(self, shape: Sequence[int]) -> int:
        """Rows of a forward pass over images of this shape."""
        if self._batch_size is not None:
            return self._batch_size
        return rows_by_rule(shape, self.model.device, self._most_rows)

    def halve(self, shape: Sequence[int]) -> int | None:
        """Halve the rows of a pass after it ran out of memory.

        Returns:
            The new number of rows; None if it is 1 already.
        """
        rows = self.rows(shape)
        # A compiled network takes batches of one size only.
        self.noisy = self._as_loaded
        if rows == 1:
            return None
        self._batch_size = rows // 2
        self._halved = True
        if self._most_gradient_rows is not None:
            self._most_gradient_rows = max(1, self._most_gradient_rows // 2)
        return self._batch_size

    def gradient_rows(self, shape: Sequence[int], margins: int) -> int:
        """Rows of a pass that differentiates ``margins`` margins.

        On CUDA they are as many as fit, if measured, else a quarter of a forward pass. On the CPU
        they are a quarter of the rule's number, up to the batch size; with a single margin 64, the
        fastest number. The gradients themselves take 256 MB at most, on CUDA a share of the memory.
        """
        gradient_bytes = math.prod(shape) * margins * torch.finfo(self.model.dtype).bits // 8
        rows = self.rows(shape)
        measured = self._most_gradient_rows
        if self.model.device.type != "cpu":
            rows = rows // 4 if measured is None else measured
        else:
            # Not a quarter of a small batch: a network would round so few rows differently, and no
            # batch size may change a byte.
            whole = rows if self._halved else min(4 * rows, rows_by_rule(shape, self.model.device))
            rows = min(whole, _SINGLE_ROWS) if margins == 1 else whole // 4
        return max(1, min(rows, self._gradient_bytes // gradient_bytes))

    def steady(self, rows: int) -> int:
        """Round rows up to a multiple of 8 on the CPU, for chains whose decisions depend on the
        last digits.

        With fewer rows a network rounds differently, and no batch size may change a chain.
        """
        if self._halved or self.model.device.type != "cpu":
            return rows
        return _full(rows, rows + _TAIL)

    def model_under(self, noise: str | None) -> LogitModel:
        """The model for copies under this noise: it clips their pixels if the noise requires it."""
        return self.model.clipping(self.noises[noise].noise.clip)

    def noisy_model_under(self, noise: str | None) -> LogitModel:
        """As :meth:`model_under`, for noisy passes without gradients."""
        return self.noisy.clipping(self.noises[noise].noise.clip)

    def logits(self, x: Tensor) -> Tensor:
        """Logits of images (n, channels, height, width), batched; float64 (n, classes)."""
        rows = self.rows(x.shape[1:])
        logits = torch.empty((len(x), self.classes), dtype=torch.float64, device=x.device)
        for out, part in zip(logits.split(rows), x.split(rows), strict=True):
            with torch.inference_mode():
                out.copy_(self.model(padded(part, rows))[: len(part)])
        return logits

    def noisy_logits(
        self,
        x: Tensor,
        ids: Sequence[str],
        at: NoiseLevel,
        draws: int,
        *,
        start: int = 0,
        pairs: bool = False,
        orthogonal: bool = False,
        rows: int | None = None,
    ) -> Iterator[tuple[NoisyRows, Tensor]]:
        """The rows of :meth:`noisy_batches` with their logits (n, classes), in inference mode; of
        as many rows as other passes have unless ``rows`` says otherwise."""
        source = self.noises[at.noise]
        model = self.noisy_model_under(at.noise)
        rows = rows or self.rows(x.shape[1:])
        parts = self._parts(x, ids, at, draws, start, pairs=pairs, orthogonal=orthogonal)
        write = _write_inputs(model, source, x, ids)
        done = 0
        for filled, inputs in self._filled(x, parts, rows, len(x) * draws, write):
            image_and_draw = NoisyRows(*_numbers(done, filled, draws, x.device))
            done += filled
            yield image_and_draw, _logits(model, inputs, filled, normalised=True)

    def noisy_batches(
        self,
        x: Tensor,
        ids: Sequence[str],
        at: NoiseLevel,
        draws: int,
        rows: int,
        *,
        start: int = 0,
        pairs: bool = False,
        orthogonal: bool = False,
    ) -> Iterator[NoisyBatch]:
        """Noisy copies of images in full batches, image by image.

        Args:
            x: pixels (n, channels, height, width).
            ids: sample ids, which seed the noise.
            at: the noise and its level.
            draws: noisy copies of each image.
            rows: rows of a batch.
            start: number of draws to skip (with pairs an even one); :attr:`NoisyBatch.draw` still
                counts from 0.
            pairs: whether copies come in antithetic pairs: draw 2i uses +z_i, draw 2i + 1 uses
                -z_i.
            orthogonal: whether the z_i are coupled in orthogonal blocks.
        """
        parts = self._parts(x, ids, at, draws, start, pairs=pairs, orthogonal=orthogonal)
        write = _write_pixels(self.noises[at.noise], x, ids)
        done = 0
        for filled, full in self._filled(x, parts, rows, len(x) * draws, write):
            image, draw = _numbers(done, filled, draws, x.device)
            done += filled
            yield NoisyBatch(image, draw, full[:filled], full)

    def _parts(
        self,
        x: Tensor,
        ids: Sequence[str],
        at: NoiseLevel,
        draws: int,
        start: int,
        *,
        pairs: bool,
        orthogonal: bool,
    ) -> Iterator[tuple[int, float, Tensor]]:
        """The image, level and normal variables (n, *latent_shape) of each run of copies; the
        arguments are those of :meth:`noisy_batches`."""
        noise = self.noises[at.noise]
        blocks = noise.orthogonal_blocks if orthogonal else noise.blocks
        per_unit = 2 if pairs else 1
        shape = shape_of(x)
        for b, sample_id in enumerate(ids):
            for block in blocks(sample_id, draws // per_unit, shape, start // per_unit):
                z = torch.stack([block, -block], dim=1).flatten(0, 1) if pairs else block
                yield b, at.number, z

    def pool(self, x: Tensor, ids: Sequence[str], noise: str | None) -> DrawPool | None:
        """A cache on the CUDA device for the draws of :meth:`chosen_logits`.

        None on the CPU, and for a noise that is made at a single level for all rows.
        """
        room = free_bytes(x.device) if x.device.type != "cpu" else 0
        return self.noises[noise].pool(ids, shape_of(x), int(_POOL_SHARE * room))

    def chosen_logits(
        self,
        x: Tensor,
        ids: Sequence[str],
        noise: str | None,
        images: Sequence[int],
        levels: Sequence[float],
        draws: Sequence[NDArray[np.int64]],
        pool: DrawPool | None = None,
    ) -> Iterator[Tensor]:
        """Logits of chosen draws of some images, each image at its own level, in inference mode.

        Args:
            x: images (n, channels, height, width).
            ids: their sample ids.
            noise: the noise's label.
            images: indices into x.
            levels: the level of each of ``images``.
            draws: the draw numbers of each of ``images``, ascending; the same draws as in
                :meth:`noisy_batches`.
            pool: a cache for the images x, from :meth:`pool`.

        Yields:
            Logits (rows, classes), image by image, in the order of the draws.
        """
        source = self.noises[noise]
        rows = self.rows(x.shape[1:])
        shape = shape_of(x)
        model = self.noisy_model_under(noise)
        if pool is not None:
            most = max(int(numbers[-1]) for numbers in draws) + 1
            cached = pool.with_draws(images, most, x)
            if cached is not None:
                yield from self._pooled_logits(model, x, source, images, levels, draws, cached)
                return
        requests = [(ids[b], numbers) for b, numbers in zip(images, draws, strict=True)]
        parts = ((images[which], levels[which], z) for which, z in source.chosen(requests, shape))
        write = _write_inputs(model, source, x, ids)
        for filled, inputs in self._filled(x, parts, rows, sum(map(len, draws)), write):
            yield _logits(model, inputs, filled, normalised=True)

    def _pooled_logits(
        self,
        model: LogitModel,
        x: Tensor,
        source: NoiseProcess,
        images: Sequence[int],
        levels: Sequence[float],
        draws: Sequence[NDArray[np.int64]],
        cached: Tensor,
    ) -> Iterator[Tensor]:
        """:meth:`chosen_logits` of draws on the device.

        A batch of any images and levels is one gather. Searches are then no longer
        limited by the launches of CUDA kernels (79 for each image instead of 924, as measured).
        """
        rows = self.rows(x.shape[1:])
        sizes = [len(numbers) for numbers in draws]
        where = np.stack([np.repeat(images, sizes), np.concatenate(draws)])  # (2, all draws)
        at = torch.from_numpy(where).to(x.device, non_blocking=True)
        level = torch.from_numpy(np.repeat(levels, sizes))
        level = level.to(x.device, x.dtype, non_blocking=True)[:, None, None, None]
        for (image, draw), part in zip(at.split(rows, 1), level.split(rows), strict=True):
            pixels = source.noise.noisy_rows(x[image], cached[image, draw].to(x.dtype), part)
            yield _logits(model, padded(pixels, rows), len(pixels))

    def _filled(
        self,
        x: Tensor,
        parts: Iterable[tuple[int, float, Tensor]],
        rows: int,
        total: int,
        write: _Write,
    ) -> Iterator[tuple[int, Tensor]]:
        """Fill padded batches with noisy copies.

        Args:
            x: pixels (n, channels, height, width).
            parts: image, level and normal variables (n, *latent_shape) of each run of copies.
            rows: rows of a batch.
            total: number of all copies.
            write: makes the copies.

        Yields:
            The number of copies in a batch, and the batch, padded. All batches share one buffer.
        """
        buffer = torch.empty((rows, *shape_of(x)), dtype=x.dtype, device=x.device)
        done = 0
        filled = 0
        for b, level, z in parts:
            n = z.shape[0]
            taken = 0
            while taken < n:
                end = min(filled + n - taken, rows)
                upto = taken + end - filled
                write(b, level, z[taken:upto], buffer[filled:end])
                taken = upto
                filled = end
                # The last batch is rarely full, so it ends with the last copy.
                if filled == rows or done + filled == total:
                    full = _full(filled, rows)
                    if full > filled:
                        buffer[filled:full] = buffer[filled - 1]
                    yield filled, buffer[:full]
                    done += filled
                    filled = 0


def _write_pixels(source: NoiseProcess, x: Tensor, ids: Sequence[str]) -> _Write:
    """Write noisy copies of images as pixels."""

    def write(b: int, level: float, z: Tensor, out: Tensor) -> None:
        out.copy_(source.noisy(x[b : b + 1], z, level, ids=[ids[b]]))

    return write


def _write_inputs(model: LogitModel, source: NoiseProcess, x: Tensor, ids: Sequence[str]) -> _Write:
    """Write noisy copies of images as the network's input, clipped and normalised.

    (x + a z - mean) / std is written as (x - mean) / std + (a / std) z: one multiplication and one
    addition for each value, where most of the work would else be reading and writing batches.
    """
    noise = source.noise
    if noise.on_file or model.clip or not noise.scales_only:

        def write(b: int, level: float, z: Tensor, out: Tensor) -> None:
            model.inputs(source.noisy(x[b : b + 1], z, level, ids=[ids[b]]), out)

        return write
    clean = model.inputs(x)
    factors: dict[float, Tensor] = {}

    def write_scaled(b: int, level: float, z: Tensor, out: Tensor) -> None:
        if level not in factors:
            factors[level] = level / model.std
        torch.addcmul(clean[b : b + 1], z, factors[level], out=out)

    return write_scaled


def _numbers(done: int, filled: int, draws: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Image and draw of each of ``filled`` copies after the first ``done``, image by image."""
    index = torch.arange(done, done + filled, device=device)
    return index // draws, index % draws


def _logits(model: LogitModel, padded: Tensor, rows: int, *, normalised: bool = False) -> Tensor:
    """Logits of the first rows of a batch of pixels, or of normalised images, in inference mode."""
    with torch.inference_mode():
        logits: Tensor = model(padded, normalised=normalised)
        return logits[:rows]


def padded(x: Tensor, most: int) -> Tensor:
    """Pad x with copies of its last row to a multiple of 8 rows, ``most`` at most.

    On the CPU a row then has the same bits in any batch.
    """
    missing = _full(len(x), most) - len(x)
    if not missing:
        return x
    copies = x[-1:].expand(missing, *x.shape[1:])
    return torch.cat([x, copies])


def _full(rows: int, most: int) -> int:
    """The smallest multiple of 8 that holds the rows, ``most`` at most."""
    return min(most, -(-rows // _TAIL) * _TAIL)


def rows_by_rule(shape: Sequence[int], device: torch.device, most: int | None = None) -> int:
    """Rows of a forward pass, by the rule of :class:`Engine`: a power of two that depends on the
    size of an image and the kind of device.

    Where a pass on CUDA was measured, memory alone decides: ``most`` rows, up to 4,096.
    """
    if most is not None:
        return min(_CUDA_ROWS, _power_of_two(most))
    cuda = device.type != "cpu"
    wanted = (_CUDA_VALUES if cuda else _CPU_VALUES) / math.prod(shape)
    return min(_CUDA_ROWS if cuda else _CPU_ROWS, max(_FEWEST_ROWS, _power_of_two(wanted)))


def _power_of_two(number: float) -> int:
    """The largest power of two up to a number; at least 1."""
    return 1 << math.floor(math.log2(max(1.0, number)))


def rows_that_fit(measure: Callable[[int], int], most: int, budget: int) -> int:
    """The rows of a pass that stays within a budget of memory.

    They are doubled from 1 while twice the measured peak is within the budget.

    Args:
        measure: the peak bytes of a pass with this many rows.
        most: largest number of rows.
        budget: bytes that a pass may take.
    """
    rows = 1
    while rows < most:
        taken = measure(rows)
        # Small networks need no further measurements: even the most rows, extrapolated and times
        # the caution, fit.
        if _CAUTION * taken * most <= rows * budget:
            return most
        if 2 * taken > budget:
            break
        rows *= 2
    return min(rows, most)


def pass_bytes(model: LogitModel, image: Tensor, rows: int, *, gradient: bool = False) -> int:
    """Peak bytes of a pass, beyond the bytes held before it.

    Args:
        model: pixels -> logits.
        image: one image (channels, height, width); all rows are copies of it.
        rows: number of rows.
        gradient: whether the pass is differentiated.
    """

    def work() -> None:
        with torch.inference_mode(not gradient), torch.set_grad_enabled(gradient):
            x = image.to(model.device, model.dtype).expand(rows, *image.shape)
            x = x.contiguous(memory_format=model.memory_format)
            x = x.detach().requires_grad_(gradient)
            logits = model(x)
            if gradient:
                torch.autograd.grad(logits[:, 0].sum(), x)

    work()  # libraries keep workspace from the first pass, which a second one does not take again
    return extra_peak(work, model.device)


def fitting_passes(noisy: LogitModel, exact: LogitModel | None, image: Tensor, free: int) -> Fit:
    """The largest passes that fit into a quarter of the free memory of a CUDA device, extrapolated
    from small passes.

    The CPU has no such limit: its passes are small by rule, and fewer rows would round differently.

    Args:
        noisy: the network for noisy passes.
        exact: the network for differentiated passes; None if there are none.
        image: one image, for its shape.
        free: bytes of the device's memory for passes and chunk.
    """
    budget = int(_PASS_SHARE * free)

    def noisy_bytes(rows: int) -> int:
        return pass_bytes(noisy, image, rows)

    rows = rows_that_fit(noisy_bytes, _CUDA_ROWS, budget)
    gradient_rows = rows
    if exact is not None:

        def exact_bytes(rows: int) -> int:
            return pass_bytes(exact, image, rows, gradient=True)

        gradient_rows = rows_that_fit(exact_bytes, _CUDA_ROWS, budget)
    # Gradients are held beside the pass: they get half of its budget.
    return Fit(rows, gradient_rows, budget // 2 // _COPIES)
