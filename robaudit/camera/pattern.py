"""What stays the same in every shot: the fixed pattern of the sensor, and defective pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from robaudit.camera.blocks import Singles
from robaudit.camera.moments import Measured, of_pair
from robaudit.camera.pairs import StillScene
from robaudit.estimates import Estimate
from robaudit.numerics.intervals import clopper_pearson

_FLATTEST = 0.1  # of the blocks
_FEWEST_FLAT = 8  # blocks
_AS_FLAT = 1.5  # times the range of brightness
_HIGH_PASS_GAIN = 1.25  # variance of a value less the mean of four others, for equal variances
_ISOLATED = 0.05  # of white: how far a defect must be from its neighbours
_ALIKE = 0.02  # of white: how far its neighbours may be from each other
_AROUND = 2  # pixels on each side
_SIGMAS = 6.0
_CHANCE = 0.01  # of a single pixel that is called stuck and is not


def fixed_pattern(scenes: Sequence[Measured]) -> Estimate:
    """The standard deviation of what each pixel adds to all shots alike, DSNU and PRNU together, in
    the flattest tenth of the blocks. What texture the scene has there is part of it.

    The high-pass filtered means of two halves of the shots are multiplied, so that temporal noise
    averages to 0. EMVA 1288 subtracts it instead, and takes its filter from a flat field.
    """
    products: list[float] = []
    for found in scenes:
        ranges = np.ptp(found.brightness, axis=2).max(1)  # (blocks,)
        most = max(_FEWEST_FLAT, round(_FLATTEST * len(ranges)))
        # Those that are as flat are taken too: of blocks that differ by their noise alone, the
        # flattest have less of it than most.
        flattest = np.flatnonzero(ranges <= _AS_FLAT * np.sort(ranges)[:most][-1])
        first, second = (_high_passed(half[flattest]) for half in _two_means(found.scene))
        products += (first * second).mean((1, 2, 3), dtype=np.float64).tolist()
    variances = np.array(products) / _HIGH_PASS_GAIN
    mean = float(variances.mean())
    error = float(variances.std(ddof=1)) / math.sqrt(len(products))
    half = float(stdtrit(len(products) - 1, 0.975)) * error
    ends = (math.sqrt(max(mean - half, 0.0)), math.sqrt(max(mean + half, 0.0)))
    return Estimate.measured(math.sqrt(max(mean, 0.0)), ends, "mean over flat blocks")


def _two_means(scene: StillScene) -> tuple[Singles, Singles]:
    """The means of two halves of the shots: of every other pair, or the shots of a single one."""
    if len(scene.pairs) == 1:
        first = scene.pairs[0]
        one, other = (scene.stack.pixels(first + place)[scene.blocks] for place in range(2))
        return one, other
    halves = [range(start, len(scene.pairs), 2) for start in range(2)]
    even, odd = (_mean_of(scene, half) for half in halves)
    return even, odd


def _mean_of(scene: StillScene, pairs: Sequence[int]) -> Singles:
    """The mean of some pairs."""
    mean: Singles = np.mean([of_pair(scene, pair) for pair in pairs], axis=0, dtype=np.float32)
    return mean


def _high_passed(pixels: Singles) -> Singles:
    """Each inner pixel of a block less the mean of its four neighbours."""
    around = pixels[..., :-2, 1:-1] + pixels[..., 2:, 1:-1]
    around = around + pixels[..., 1:-1, :-2] + pixels[..., 1:-1, 2:]
    passed: Singles = pixels[..., 1:-1, 1:-1] - around / np.float32(4)
    return passed


def defects(scenes: Sequence[Measured], sigma: float) -> Estimate | None:
    """The share of pixels that differ from all around them in every shot: dead, hot and warm ones.

    It is a share of the pixels whose neighbours in 5 x 5 are alike: among others, a defect looks
    like detail. None if there are none such. (EMVA 1288 leaves the thresholds to the user.)
    """
    found = 0
    total = 0
    for scene in (measured.scene for measured in scenes):
        first, second = _two_means(scene)
        mean = (first + second) / 2
        error = sigma / math.sqrt(2 * len(scene.pairs))
        inner = mean.shape[-1] - 2 * _AROUND
        if inner <= 0:
            continue
        window = 2 * _AROUND + 1
        middle = (_AROUND, _AROUND)
        places = [place for place in np.ndindex(window, window) if place != middle]
        around = np.stack([mean[..., y : y + inner, x : x + inner] for y, x in places])
        pixels = mean[..., _AROUND:-_AROUND, _AROUND:-_AROUND]
        is_flat = (np.ptp(around, axis=0) <= _ALIKE + _SIGMAS * error).all(1)
        distance = np.abs(pixels - around.mean(0))
        is_far = (distance > _ISOLATED + _SIGMAS * error).any(1)
        found += int((is_far & is_flat).sum())
        total += int(is_flat.sum())
    return _share(found, total) if total else None


def stuck(scenes: Sequence[Measured], sigma: float) -> Estimate | None:
    """The share of pixels that have the same value in all shots; None where a live pixel might.

    Two normal numbers of standard deviation sigma fall into the same step with probability step /
    (2 sqrt pi sigma), for steps up to sigma.

    Args:
        scenes: of one noise.
        sigma: the smallest standard deviation at any brightness.
    """
    found = 0
    total = 0
    for scene in (measured.scene for measured in scenes):
        stack = scene.stack
        if sigma < stack.step:
            return None
        same = stack.step / (2 * math.sqrt(math.pi) * sigma)
        shots = [first + place for first in scene.pairs for place in range(2)]
        pixels = len(scene.blocks) * stack.grid.side**2
        if same ** (len(shots) - 1) * pixels > _CHANCE:
            return None
        values = stack.values[shots][:, scene.blocks]
        # In any channel: colours of a pixel are made from several of the sensor's.
        is_stuck = (values == values[0]).all(0).any(1)
        found += int(is_stuck.sum())
        total += is_stuck.size
    return _share(found, total)


def _share(found: int, total: int) -> Estimate:
    """A share with its exact interval."""
    lower, upper = clopper_pearson(found, total)
    return Estimate.measured(found / total, (float(lower), float(upper)), "Clopper-Pearson")
