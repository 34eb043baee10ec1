"""Sums of a still scene: variance by channel and by brightness, products of neighbours, and the
moments of the photon transfer line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robaudit.camera.blocks import PATCH, Floats, Singles
from robaudit.camera.curve import Curve
from robaudit.camera.pairs import StillScene, patches
from robaudit.camera.sums import Sums

BINS = 32
"""Bins of brightness, of equal width."""
LAGS = ((0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (0, 3), (3, 0))
"""Distances of neighbours, down and across, whose correlation is measured."""
_MOST_GROUPS = 128  # of blocks
_FEWEST_GROUPS = 16
_IN_GROUP = 8  # blocks, if there are enough
_CELLS = (1, 2, PATCH)  # pixels of a side, over which brightness may be averaged
_SEED = 0


@dataclass(frozen=True)
class Halves:
    """Brightness and variance of a pair in each patch, with a brightness of independent noise.

    A line fitted to noisy brightness is too flat, and shot noise makes bright pixels look noisier.
    Both end where the brightness that chooses a patch's weight has other noise than its variance:
    that of other pairs or, with a single pair, of the other squares of a chessboard.

    Attributes:
        instrument: brightness by the other half, (blocks, channels, patches).
        brightness: by this half, of the same shape.
        variance: of this half and pair, of the same shape.
    """

    instrument: Singles
    brightness: Singles
    variance: Singles


@dataclass(frozen=True)
class Measured:
    """A still scene with the sums that do not depend on a curve.

    Attributes:
        scene: its usable pairs.
        group: of each block, (blocks,).
        cell: side in pixels of the squares that have one brightness: 1, unless noise would blur it.
        brightness: of each square over all pairs, (blocks, channels, squares).
        sums: of :func:`measured`.
    """

    scene: StillScene
    group: NDArray[np.int64]
    cell: int
    brightness: Singles
    sums: Sums

    def pixel_brightness(self, blocks: NDArray[np.int64]) -> Singles:
        """The brightness of some blocks at each pixel, (n, channels, side, side): that of its
        square."""
        return _of_pixels(self.brightness[blocks], self.cell)

    def standardised(
        self, pair: int | NDArray[np.int64], blocks: NDArray[np.int64], curve: Curve
    ) -> Singles:
        """The noise of some blocks of a pair, or of a pair for each, in standard deviations at its
        brightness, (n, channels, side, side)."""
        deviation = np.sqrt(curve.variance(self.pixel_brightness(blocks)))
        standard: Singles = self.scene.noise[pair, blocks] / deviation
        return standard


class _Collector:
    """Adds up sums of blocks into those of groups and pairs.

    Args:
        group: of each block, (blocks,).
        used: which blocks of which pair count, (pairs, blocks).
    """

    def __init__(self, group: NDArray[np.int64], used: NDArray[np.bool_]) -> None:
        self._group = group
        self._used = used
        self._groups = int(group.max()) + 1
        self._of_groups: dict[str, Floats] = {}
        self._of_pairs: dict[str, Floats] = {}

    def add(self, name: str, pair: int, of_blocks: NDArray[Any]) -> None:
        """Add sums (blocks, ...) of a pair."""
        counted = of_blocks.astype(np.float64)
        counted[~self._used[pair]] = 0.0
        rest = counted.shape[1:]
        if name not in self._of_groups:
            self._of_groups[name] = np.zeros((self._groups, *rest))
            self._of_pairs[name] = np.zeros((len(self._used), *rest))
        np.add.at(self._of_groups[name], self._group, counted)
        self._of_pairs[name][pair] += counted.sum(0)

    def sums(self) -> Sums:
        """All sums."""
        return Sums(self._of_groups, self._of_pairs)


def measured(scene: StillScene) -> Measured:
    """The sums of a scene that need no curve: ``count`` and ``square`` by channel, ``bin_count``,
    ``bin_brightness`` and ``bin_variance`` by channel and bin, ``lag_count`` and ``lag_product`` by
    lag, ``between`` by two channels, ``plain_line`` with weights of 1, and ``signal``, the squared
    brightness without its noise."""
    blocks = len(scene.blocks)
    cell = _cell(scene)
    brightness = _mean([patches(of_pair(scene, pair), cell) for pair in range(len(scene.pairs))])
    group = _groups(brightness)
    collect = _Collector(group, scene.used)
    side = scene.stack.grid.side
    for pair, noise in enumerate(scene.noise):
        channels = noise.shape[1]
        squares = np.square(noise)
        collect.add("count", pair, np.full((blocks, channels), float(side * side)))
        collect.add("square", pair, squares.sum((2, 3), dtype=np.float64))
        _add_bins(collect, pair, brightness, patches(squares, cell), cell)
        products = list(_lag_sums(scene, pair))
        collect.add("lag_count", pair, np.stack([count for count, _ in products], axis=-1))
        collect.add("lag_product", pair, np.stack([total for _, total in products], axis=-1))
        collect.add("between", pair, _between(noise))
    for pair, halves in _all_halves(scene):
        _add_line(collect, "plain_line", pair, halves, np.ones_like(halves.instrument))
        signal = halves.instrument.astype(np.float64) * halves.brightness
        collect.add("signal", pair, signal.sum((1, 2)))
    return Measured(scene, group, cell, brightness, collect.sums())


def with_curve(found: Measured, curve: Curve) -> Sums:
    """The sums that need the variance by brightness: ``fourth`` and ``second`` moments of the
    standardised noise with their ``number``, and ``line`` with weights 1 / variance^2."""
    scene = found.scene
    collect = _Collector(found.group, scene.used)
    scale = _of_pixels(np.sqrt(curve.variance(found.brightness)), found.cell)
    for pair, noise in enumerate(scene.noise):
        square = np.square(noise / scale, dtype=np.float64)
        collect.add("number", pair, np.full(len(noise), float(square[0].size)))
        collect.add("second", pair, square.sum((1, 2, 3)))
        collect.add("fourth", pair, np.square(square).sum((1, 2, 3)))
    for pair, halves in _all_halves(scene):
        # The variance of an estimated variance is proportional to its square.
        weights = 1 / np.square(curve.variance(halves.instrument))
        _add_line(collect, "line", pair, halves, weights)
    return collect.sums()


def _mean(parts: Sequence[Singles]) -> Singles:
    """The mean of arrays of one shape."""
    mean: Singles = np.mean(parts, axis=0, dtype=np.float32)
    return mean


def _cell(scene: StillScene) -> int:
    """The side of the smallest squares whose brightness is known to half a bin."""
    deviation = float(np.sqrt(np.square(scene.noise, dtype=np.float64).mean()))
    of_pixel = deviation / np.sqrt(2 * len(scene.pairs))
    return next((cell for cell in _CELLS if of_pixel / cell <= 0.5 / BINS), PATCH)


def _groups(brightness: Singles) -> NDArray[np.int64]:
    """The group of each block, (blocks,): every group has blocks of every brightness, so that
    groups differ by their noise and not by what they show."""
    blocks = len(brightness)
    fewest = min(_FEWEST_GROUPS, blocks)
    groups = min(_MOST_GROUPS, max(blocks // _IN_GROUP, fewest))
    order = np.argsort(brightness.mean((1, 2)), kind="stable")
    random = np.random.default_rng(_SEED)
    group = np.empty(blocks, dtype=np.int64)
    for start in range(0, blocks, groups):
        similar = order[start : start + groups]
        group[similar] = random.permutation(groups)[: len(similar)]
    return group


def of_pair(scene: StillScene, pair: int) -> Singles:
    """The brightness of the pixels of a pair, (blocks, channels, side, side)."""
    first = scene.pairs[pair]
    both = scene.stack.pixels(first)[scene.blocks] + scene.stack.pixels(first + 1)[scene.blocks]
    mean: Singles = both / np.float32(2)
    return mean


def _add_bins(
    collect: _Collector, pair: int, brightness: Singles, variance: Singles, cell: int
) -> None:
    """Add the variance of squares to the bins of their brightness, for each of their values."""
    blocks, channels, _ = brightness.shape
    bins = np.clip((brightness * BINS).astype(np.int64), 0, BINS - 1)
    place = np.arange(blocks * channels).reshape(blocks, channels, 1) * BINS + bins
    size = blocks * channels * BINS
    shape = (blocks, channels, BINS)
    weights = {"bin_count": None, "bin_brightness": brightness, "bin_variance": variance}
    for name, values in weights.items():
        weight = None if values is None else values.ravel().astype(np.float64)
        binned = np.bincount(place.ravel(), weight, size) * cell**2
        collect.add(name, pair, binned.reshape(shape))


def _lag_sums(scene: StillScene, pair: int) -> Iterator[tuple[Floats, Floats]]:
    """The number and the sum of products of values at each distance, by the block of the first one.

    In the window, where blocks touch: the noise of JPEG is correlated within its own blocks of 8 or
    16 pixels, and less from one to the next.
    """
    grid = scene.stack.grid
    down_blocks, across_blocks = grid.window
    inside = np.flatnonzero(scene.blocks < down_blocks * across_blocks)
    blocks = np.zeros((down_blocks * across_blocks, *scene.noise.shape[2:]), dtype=np.float32)
    blocks[scene.blocks[inside]] = scene.noise[pair, inside]
    is_used = np.zeros((len(blocks), 1, grid.side, grid.side), dtype=np.float32)
    is_used[scene.blocks[inside]] = scene.used[pair, inside, None, None, None]
    noise = grid.in_window(blocks)
    used = grid.in_window(is_used)
    for down, across in LAGS:
        of_blocks = [
            _at_lag(values, down, across, grid.side)[scene.blocks[inside]]
            for values in (used, noise)
        ]
        sums = np.zeros((2, len(scene.blocks)))
        sums[:, inside] = of_blocks
        yield sums[0] * noise.shape[0], sums[1]


def _at_lag(window: Singles, down: int, across: int, side: int) -> Floats:
    """Sums of the products of values at a distance, by the block of the first one, (blocks,)."""
    _, height, width = window.shape
    products = np.zeros((height, width))
    first = window[:, : height - down, : width - across]
    products[: height - down, : width - across] = (first * window[:, down:, across:]).sum(0)
    tiled = products.reshape(height // side, side, width // side, side)
    sums: Floats = tiled.sum((1, 3)).ravel()
    return sums


def _between(noise: Singles) -> Floats:
    """Products of the channels at the same pixel in each block, (blocks, channels, channels)."""
    products: Floats = np.einsum("bcyx,bdyx->bcd", noise, noise, dtype=np.float64)
    return products


def _all_halves(scene: StillScene) -> Iterator[tuple[int, Halves]]:
    """The halves of each pair, or both halves of a single one."""
    if len(scene.pairs) == 1:
        yield from ((0, halves) for halves in _chessboard(scene))
        return
    brightness = [patches(of_pair(scene, pair)) for pair in range(len(scene.pairs))]
    even = _mean(brightness[::2])
    odd = _mean(brightness[1::2])
    for pair, noise in enumerate(scene.noise):
        variance = patches(np.square(noise))
        own, other = (even, odd) if pair % 2 == 0 else (odd, even)
        yield pair, Halves(other, own, variance)


def _chessboard(scene: StillScene) -> Iterator[Halves]:
    """The halves of a single pair: the white and the black squares of a chessboard of pixels."""
    side = scene.stack.grid.side
    is_white = (np.indices((side, side)).sum(0) % 2 == 0).astype(np.float32)
    brightness = of_pair(scene, 0)
    squares = np.square(scene.noise[0])
    halves = []
    for colour in (is_white, 1 - is_white):
        # Half of the pixels of a patch are of each colour.
        seen: Singles = 2 * patches(brightness * colour)
        varied: Singles = 2 * patches(squares * colour)
        halves.append((seen, varied))
    (white, white_variance), (black, black_variance) = halves
    yield Halves(black, white, white_variance)
    yield Halves(white, black, black_variance)


def _add_line(
    collect: _Collector, name: str, pair: int, halves: Halves, weights: NDArray[Any]
) -> None:
    """Add the sums of a photon transfer line: of w, w A, w s, w A s, w v and w A v over channels
    and patches, with the brightness A of the other half, s of this one, and the variance v."""
    w = weights.astype(np.float64)
    instrument = halves.instrument.astype(np.float64)
    terms = (np.ones_like(w), halves.brightness, halves.variance)
    sums = [(w * factor * term).sum((1, 2)) for term in terms for factor in (1.0, instrument)]
    collect.add(name, pair, np.stack(sums, axis=-1))


def _of_pixels(of_squares: Singles, cell: int) -> Singles:
    """Values of squares (..., squares) at their pixels, (..., side, side)."""
    count = round(of_squares.shape[-1] ** 0.5)
    square = of_squares.reshape(*of_squares.shape[:-1], count, count)
    if cell == 1:
        return square
    pixels: Singles = square.repeat(cell, axis=-2).repeat(cell, axis=-1)
    return pixels


def channel_pairs(channels: int) -> list[tuple[int, int]]:
    """All pairs of different channels."""
    return list(combinations(range(channels), 2))
