"""Pairs of neighbouring shots that differ in noise alone, and what is wrong with the others.

Two shots that follow each other see the same light, so that their difference has no slow drift. A
pair in which the exposure, the scene or the light changed is left out, and so are blocks that are
clipped, or in which something moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from robaudit.camera.blocks import PATCH, Floats, Grid, Singles, Stack
from robaudit.errors import DataError
from robaudit.records import Record

Mask = NDArray[np.bool_]
_CLIPPED = 0.002  # of a block's values: beyond it, the noise of the block is visibly cut off
_FROM_ENDS = 3.0  # standard deviations between a spot and black or white: less loses 0.5 %
_LEVELS = 64  # of brightness, by which the noise of a spot is known
_SPOT = 2  # pixels of a side: of single pixels, noise itself would come close to the ends
_MOST_STUCK = 0.01  # of a block's pixels: dead and hot ones
_FEWEST_CLIPPED = 3  # values: a single one says nothing of a small block
_LEAST_NOISE = 1e-3  # steps of the converter: less is rounding of single precision
_FEWEST_BLOCKS = 8  # that are usable: fewer have no interval
_EXPOSURE = 0.1  # relative change of brightness: the noise itself changes with it by half of it
_OTHER_SCENE = 0.1  # of white: how far the brightness of a block of the same scene may be
_DRIFT = 0.01  # relative change of brightness that is worth a line
# Of the variance of the difference: what a shift of the scene may explain, and what the light may
# add that changes unevenly. More would show in the second digit of a standard deviation.
_MOVED = 0.02
_UNEVEN = 0.05
# Of the F statistics: with thousands of pixels, chance does not exceed them.
_SURE = 30.0
_SURE_OF_REGIONS = 3.0
_OUTLYING = 4.0  # times the usual variance: noise of twice the standard deviation
_ROBUST_SIGMAS = 6.0  # of the logarithm: JPEG leaves very different noise in similar blocks
_MOST_OUTLYING = 0.5  # of the blocks: beyond it, the pair is left out as a whole
_REGIONS = (8, 4)  # down and across: lamps flicker in bands of rows
_FEWEST_IN_REGION = 4  # blocks
_FEWEST_FOR_MEDIAN = 5  # pairs: below, a block is compared with others of its brightness
_BRIGHTNESSES = 16  # groups of blocks of similar brightness
_TRIM = 3.0  # robust standard deviations


class Finding(StrEnum):
    """What is wrong with a pair of shots, or with a part of the scene."""

    EXPOSURE = "exposure"
    """The brightness of all of it changed."""
    MOVED = "moved"
    """The scene or the camera moved."""
    LIGHT = "light"
    """The light changed in parts of the scene."""
    CHANGED = "changed"
    """Most of the scene changed."""
    CLIPPED = "clipped"
    """Blocks are black or white."""
    DRIFT = "drift"
    """The brightness drifted; the drift was removed."""
    PARTS = "parts"
    """Something moved in blocks of a pair."""


@dataclass(frozen=True, slots=True)
class Remark(Record):
    """Something that was found, and left out or removed.

    Attributes:
        finding: what.
        scene: the scene's name.
        shots: places of the shots, from 1; empty: all of them.
        amount: how much: a share of the blocks or of the brightness, or pixels of a shift.
    """

    finding: Finding
    scene: str
    shots: tuple[int, ...]
    amount: float


@dataclass(frozen=True)
class Pair:
    """The difference of two neighbouring shots.

    Attributes:
        first: the place of the first shot.
        noise: the difference over sqrt 2, without global changes of brightness: it has the variance
            of the noise of one shot; (blocks, channels, side, side).
        variance: of each block, the mean of noise^2, (blocks,).
        brightness: of each block, (blocks,).
        gain: the relative change of brightness.
        problem: what is wrong with it; None: nothing.
        amount: how much is.
    """

    first: int
    noise: Singles
    variance: Floats
    brightness: Floats
    gain: float
    problem: Finding | None
    amount: float

    @property
    def shots(self) -> tuple[int, int]:
        """The places of both shots, from 1, for remarks."""
        return self.first + 1, self.first + 2


@dataclass(frozen=True)
class StillScene:
    """The usable pairs of a scene.

    Attributes:
        stack: the shots.
        blocks: the usable blocks, by their places in the stack.
        pairs: the places of the first shots.
        noise: (pairs, blocks, channels, side, side); 0 where a block is left out.
        used: which blocks of which pair are used, (pairs, blocks).
        remarks: what was found.
    """

    stack: Stack
    blocks: NDArray[np.int64]
    pairs: tuple[int, ...]
    noise: Singles
    used: Mask
    remarks: tuple[Remark, ...]


def still_scene(stack: Stack) -> StillScene:
    """The pairs of shots that differ in noise alone.

    Raises:
        DataError: there is none; the message says why.
    """
    remarks: list[Remark] = []
    blocks = _unclipped(stack)
    pairs = _alike(stack, _usable_pairs(stack, blocks, remarks), remarks)
    used = _without_outliers(stack, pairs, remarks)
    kept = [place for place, row in enumerate(used) if row.mean() > 1 - _MOST_OUTLYING]
    for place, pair in enumerate(pairs):
        if place not in kept:
            share = float(1 - used[place].mean())
            remarks.append(Remark(Finding.CHANGED, stack.name, pair.shots, share))
    if not kept:
        raise _no_pair(stack, remarks)
    pairs = [pairs[place] for place in kept]
    used = used[kept]
    # Last, because what moves looks like strong noise, which would seem to reach black and white.
    inside = _inside(stack, blocks, pairs, used, remarks)
    used = used[:, inside]
    noise = np.stack([pair.noise[inside] for pair in pairs])
    noise[~used] = 0.0
    if float(np.square(noise).mean()) < (_LEAST_NOISE * stack.step) ** 2:
        remedy = "give shots of more bits; copies of one photo have no noise of their own"
        raise DataError(stack.name, "its shots do not differ by noise", remedy)
    firsts = tuple(pair.first for pair in pairs)
    return StillScene(stack, blocks[inside], firsts, noise, used, tuple(remarks))


def _unclipped(stack: Stack) -> NDArray[np.int64]:
    """The blocks that are neither black nor white.

    Raises:
        DataError: nearly all are.
    """
    shots, blocks = stack.values.shape[:2]
    clipped = np.zeros(blocks)
    always = np.ones(stack.values.shape[1:], dtype=bool)
    for place in range(shots):
        pixels = stack.pixels(place)
        is_clipped = (pixels <= 0) | (pixels >= 1)
        clipped += is_clipped.reshape(blocks, -1).sum(1)
        always &= is_clipped
    # Single dead and hot pixels are defects of the sensor, and not light that is cut off.
    is_few = always.any(1).mean((1, 2)) <= _MOST_STUCK
    clipped -= shots * always.reshape(blocks, -1).sum(1) * is_few
    most = max(_CLIPPED * shots * stack.values[0, 0].size, _FEWEST_CLIPPED)
    usable = np.flatnonzero(clipped <= most)
    _refuse_clipped(stack, len(usable))
    return usable


def _inside(
    stack: Stack,
    blocks: NDArray[np.int64],
    pairs: Sequence[Pair],
    used: Mask,
    remarks: list[Remark],
) -> NDArray[np.int64]:
    """Which of the blocks are so far from black and white that noise is not cut off.

    Raises:
        DataError: hardly any is.
    """
    spots = []  # (blocks, channels, spots) of each pair
    variances = []
    for pair, row in zip(pairs, used, strict=True):
        both = stack.pixels(pair.first)[blocks] + stack.pixels(pair.first + 1)[blocks]
        spots.append(patches(both / np.float32(2), _SPOT))
        variances.append(_by_level(spots[-1][row], pair.noise[row]))
    mean = np.mean(spots, axis=0)
    deviation = _deviation_at(mean, np.stack(variances))
    is_far = (np.minimum(mean, 1 - mean) >= _FROM_ENDS * deviation).all((1, 2))
    in_grid = len(stack.grid)
    usable = int(is_far.sum())
    _refuse_clipped(stack, usable)
    if usable < in_grid:
        share = 1 - usable / in_grid
        remarks.insert(0, Remark(Finding.CLIPPED, stack.name, (), share))
    # A block that no pair uses is left out for that.
    return np.flatnonzero(is_far & used.any(0))


def _refuse_clipped(stack: Stack, usable: int) -> None:
    """Refuse a scene with too few blocks in which noise is not cut off.

    Raises:
        DataError: there are too few.
    """
    blocks = len(stack.grid)
    if usable < min(_FEWEST_BLOCKS, blocks):
        raise DataError(
            stack.name,
            f"{1 - usable / blocks:.0%} of the scene is black or white, where noise is cut off",
            "shoot a scene, or choose an exposure, with neither",
        )


def _by_level(brightness: Singles, noise: Singles) -> Floats:
    """The variance of the noise of a pair by channel and brightness, (channels, levels); NaN where
    there is no spot of this brightness."""
    level = _level_of(brightness)
    variance = patches(np.square(noise), _SPOT)
    channels = variance.shape[1]
    place = np.arange(channels)[:, None] * _LEVELS + level
    size = channels * _LEVELS
    with np.errstate(invalid="ignore"):
        sums = np.bincount(place.ravel(), variance.ravel().astype(np.float64), size)
        means: Floats = sums / np.bincount(place.ravel(), minlength=size)
    return means.reshape(channels, _LEVELS)


def _level_of(brightness: Singles) -> NDArray[np.int64]:
    """The level of brightnesses."""
    return np.clip((brightness * _LEVELS).astype(np.int64), 0, _LEVELS - 1)


def _deviation_at(brightness: Singles, variances: Floats) -> Floats:
    """The standard deviation of the noise at brightnesses (blocks, channels, spots), from variances
    (pairs, channels, levels).

    A block with bright and dark parts has the noise of both, and the dark ones less than it. The
    median is over the pairs: in some of them, something may move.
    """
    levels = _level_of(brightness)
    result = np.zeros(brightness.shape)
    for channel in range(variances.shape[1]):
        of_pairs = variances[:, channel]
        seen = np.isfinite(of_pairs).sum(0)
        # Brightnesses of a few pairs are those of something that moved.
        known = np.flatnonzero(seen > seen.max() / 2)
        median = np.nanmedian(of_pairs[:, known], axis=0)
        table = np.interp(np.arange(_LEVELS), known, median)
        result[:, channel] = np.sqrt(table[levels[:, channel]])
    return result


def _usable_pairs(stack: Stack, blocks: NDArray[np.int64], remarks: list[Remark]) -> list[Pair]:
    """Pairs of neighbouring shots, no shot in two of them.

    Raises:
        DataError: there is none.
    """
    pairs: list[Pair] = []
    place = 0
    while place + 1 < len(stack.shots):
        pair = _pair(stack, blocks, place)
        if pair.problem is None:
            pairs.append(pair)
            place += 2
            continue
        remarks.append(Remark(pair.problem, stack.name, pair.shots, pair.amount))
        place += 1
    if not pairs:
        raise _no_pair(stack, remarks)
    gains = [abs(pair.gain) for pair in pairs]
    if max(gains) > _DRIFT:
        remarks.append(Remark(Finding.DRIFT, stack.name, (), max(gains)))
    return pairs


def _alike(stack: Stack, pairs: Sequence[Pair], remarks: list[Remark]) -> list[Pair]:
    """The pairs that show the same scene at the same exposure as most do: the brightness of a
    block, by which its noise is told, is the mean over all pairs."""
    brightness = np.stack([pair.brightness for pair in pairs])
    distance = np.abs(brightness - np.median(brightness, axis=0)).sum(1)
    # A pair, as the median of two scenes would be neither.
    usual = brightness[int(np.argmin(distance))]
    found = []
    for pair in pairs:
        change = abs(float((pair.brightness - usual).mean())) / max(float(usual.mean()), stack.step)
        share = float((np.abs(pair.brightness - usual) > _OTHER_SCENE).mean())
        if change > _EXPOSURE:
            remarks.append(Remark(Finding.EXPOSURE, stack.name, pair.shots, change))
        elif share > _MOST_OUTLYING:
            remarks.append(Remark(Finding.CHANGED, stack.name, pair.shots, share))
        else:
            found.append(pair)
    return found


def _no_pair(stack: Stack, remarks: Sequence[Remark]) -> DataError:
    """The error where no two neighbouring shots can be used: the first problem, and what to do."""
    remark = next(remark for remark in remarks if len(remark.shots) == 2)
    what = {
        Finding.EXPOSURE: f"its brightness changes by {remark.amount:.0%} from shot to shot",
        Finding.MOVED: f"it moves by {remark.amount:.2g} pixels or more from shot to shot",
        Finding.LIGHT: "the light changes in parts of it from shot to shot",
        Finding.CHANGED: f"{remark.amount:.0%} of it changes from shot to shot",
    }[remark.finding]
    remedy = {
        Finding.EXPOSURE: "set exposure, gain and white balance by hand, and keep them",
        Finding.MOVED: "use a tripod and a remote release or a timer, and a scene that keeps still",
        Finding.LIGHT: "use daylight or lamps that do not flicker",
        Finding.CHANGED: "shoot the same still scene",
    }[remark.finding]
    return DataError(stack.name, what, remedy)


def _pair(stack: Stack, blocks: NDArray[np.int64], place: int) -> Pair:
    """The difference of a shot and the next one."""
    first = stack.pixels(place)[blocks]
    second = stack.pixels(place + 1)[blocks]
    brightness: Singles = (first + second) / np.float32(2)
    difference = second - first
    gain = float(difference.mean() / max(float(brightness.mean()), stack.step))
    difference -= _change_of_light(difference, brightness)
    problem = None
    amount = 0.0
    shift, explained = _shift(difference, brightness)
    uneven = _uneven_light(difference, stack.grid, blocks)
    if abs(gain) > _EXPOSURE:
        problem = Finding.EXPOSURE
        amount = abs(gain)
    elif explained > _MOVED:
        problem = Finding.MOVED
        amount = shift
    elif uneven > _UNEVEN:
        problem = Finding.LIGHT
        amount = uneven
    noise = difference / np.float32(np.sqrt(2))
    variance = _of_blocks(np.square(noise))
    return Pair(place, noise, variance, _of_blocks(brightness), gain, problem, amount)


def _of_blocks(values: Singles) -> Floats:
    """The mean of each block, (blocks,)."""
    means: Floats = values.reshape(len(values), -1).mean(1, dtype=np.float64)
    return means


def _change_of_light(difference: Singles, brightness: Singles) -> Singles:
    """What a change of exposure or lamps adds to a difference: offset + slope * brightness, fitted
    to each channel. Blocks in which something moved are trimmed."""
    of_difference = difference.mean((2, 3), dtype=np.float64)  # (blocks, channels)
    of_brightness = brightness.mean((2, 3), dtype=np.float64)
    change = np.empty_like(difference)
    for channel in range(difference.shape[1]):
        offset, slope = _robust_line(of_brightness[:, channel], of_difference[:, channel])
        change[:, channel] = offset + slope * brightness[:, channel]
    return change


def _robust_line(x: Floats, y: Floats) -> tuple[float, float]:
    """Offset and slope of a line, fitted again without outliers."""
    inside = np.ones(len(x), dtype=bool)
    offset = slope = 0.0
    for _ in range(3):
        centre = x[inside].mean()
        spread = np.square(x[inside] - centre).sum()
        level = y[inside].mean()
        slope = 0.0
        # A single brightness has no slope.
        if spread > 1e-4 * inside.sum():
            slope = float(((x[inside] - centre) * (y[inside] - level)).sum() / spread)
        offset = float(level - slope * centre)
        rest = np.abs(y - offset - slope * x)
        # 1.4826 times the median is the standard deviation of a normal distribution.
        inside = rest <= _TRIM * 1.4826 * max(float(np.median(rest)), 1e-9)
    return offset, slope


def _shift(difference: Singles, brightness: Singles) -> tuple[float, float]:
    """The shift of the scene in pixels, and the share of the difference that it explains; 0 where
    chance would do as much.

    A small shift (u, v) changes a pixel by u dI/dx + v dI/dy. Noise in the gradient does no harm:
    the sum of two shots is uncorrelated with their difference.

    Source: Lucas and Kanade (1981), IJCAI.
    """
    inner = difference[..., 1:-1, 1:-1].astype(np.float64).ravel()
    across = (brightness[..., 1:-1, 2:] - brightness[..., 1:-1, :-2]).ravel() / 2
    down = (brightness[..., 2:, 1:-1] - brightness[..., :-2, 1:-1]).ravel() / 2
    gradients = np.stack([across, down]).astype(np.float64)
    products = gradients @ gradients.T
    with_difference = gradients @ inner
    # A flat scene has no gradients, and cannot be seen to move.
    shift, *_ = np.linalg.lstsq(products, with_difference, rcond=1e-9)
    explained = float(with_difference @ shift)
    total = max(float(inner @ inner), 1e-300)
    f_statistic = explained / 2 / (total / len(inner))
    if f_statistic < _SURE:
        return 0.0, 0.0
    return float(np.hypot(*shift)), explained / total


def _uneven_light(difference: Singles, grid: Grid, blocks: NDArray[np.int64]) -> float:
    """The variance of the light's change between regions, relative to that of the difference; 0
    where chance would do as much. (One-way analysis of variance of the means of blocks.)"""
    means = _of_blocks(difference)
    _, height, width = grid.shape
    # Fewer regions in a small image, so that each has blocks enough.
    most_down = min(_REGIONS[0], max(1, height // grid.side // 2))
    most_across = min(_REGIONS[1], max(1, width // grid.side // 2))
    down = np.minimum(grid.rows[blocks] * grid.side * most_down // height, most_down - 1)
    across = np.minimum(grid.columns[blocks] * grid.side * most_across // width, most_across - 1)
    region = down * most_across + across
    sizes = np.bincount(region, minlength=most_down * most_across)
    is_large = sizes >= _FEWEST_IN_REGION
    regions = int(is_large.sum())
    inside = is_large[region]
    if regions < 2:
        return 0.0
    sums = np.bincount(region, means, minlength=len(sizes))
    centre = sums / np.maximum(sizes, 1)
    within = float(np.square(means - centre[region])[inside].sum())
    within /= max(int(sizes[is_large].sum()) - regions, 1)
    average_size = float(sizes[is_large].mean())
    between = float(np.var(centre[is_large], ddof=1))
    if between * average_size < _SURE_OF_REGIONS * within:
        return 0.0
    total = float(np.square(difference, dtype=np.float64).mean())
    return max(between - within / average_size, 0.0) / max(total, 1e-300)


def _without_outliers(stack: Stack, pairs: Sequence[Pair], remarks: list[Remark]) -> Mask:
    """The blocks of each pair in which nothing moved, (pairs, blocks): their variance is less than
    four times the usual one, or not unusual among all blocks."""
    variance = np.stack([pair.variance for pair in pairs])
    if len(pairs) >= _FEWEST_FOR_MEDIAN:
        usual = np.median(variance, axis=0)[None, :]
    else:
        brightness = np.mean([pair.brightness for pair in pairs], axis=0)
        usual = _by_brightness(variance, brightness)[None, :]
    # Where a scene hardly reaches the next step of the converter, its variance is mostly chance.
    usual = np.maximum(usual, np.square(stack.step) / 4)
    ratio = np.log(np.maximum(variance, np.square(stack.step) / 4) / usual)
    # 1.4826 times the median is the standard deviation of a normal distribution.
    spread = 1.4826 * float(np.median(np.abs(ratio - np.median(ratio))))
    used: Mask = ratio <= max(np.log(_OUTLYING), _ROBUST_SIGMAS * spread)
    for pair, row in zip(pairs, used, strict=True):
        share = float(1 - row.mean())
        if 0 < share < _MOST_OUTLYING:
            remarks.append(Remark(Finding.PARTS, stack.name, pair.shots, share))
    return used


def _by_brightness(variance: Floats, brightness: Floats) -> Floats:
    """The median variance of blocks of similar brightness, (blocks,)."""
    groups = min(_BRIGHTNESSES, max(1, len(brightness) // 8))
    order = np.argsort(brightness, kind="stable")
    usual = np.empty(len(brightness))
    for group in np.array_split(order, groups):
        usual[group] = np.median(variance[:, group])
    return usual


def patches(blocks: Singles, size: int = PATCH) -> Singles:
    """The means of the square patches of blocks (..., side, side): (..., patches)."""
    *more, side, _ = blocks.shape
    if size == 1:
        return blocks.reshape(*more, side * side)
    count = side // size
    tiled = blocks.reshape(*more, count, size, count, size)
    means: Singles = tiled.mean((-3, -1), dtype=np.float32).reshape(*more, count * count)
    return means
