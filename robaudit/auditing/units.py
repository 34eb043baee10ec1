"""Check the units of pixels, mean and std, and noise levels: values impossible for pixels in [0, 1]
are refused, odd ones warn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from robaudit.errors import DataError, RobauditError, SpecError
from robaudit.levels import LevelName
from robaudit.noise.noise import shape_of
from robaudit.noise.process import NoiseProcess
from robaudit.settings import AS_GIVEN, ESTIMATE
from robaudit.text import count

_ROUNDING = 1e-6  # of pixels
# Resampling overshoots [0, 1] by less; normalised pixels leave it by more.
_OVERSHOOT = 0.25
# Pixels whose largest value lies between these look like bytes.
_LEAST_BYTE = 64
_MOST_BYTE = 255
_DRAWS = 4  # of a noise whose level is above 1, to measure how far it moves pixels
_HALF_RANGE = 0.5
# Levels that are likely to be grey levels. Levels from 1 to 2 are used for certificates.
_LEAST_GREY = 2
_MOST_GREY = 255
_EIGHT_BITS = 1e-3  # tolerance for a pixel of 8 bits, in steps of 8 bits
_MOST_PERCENT = 50  # levels up to here may be percentages, too
_DEPTHS = (10, 12, 14)  # bits of cameras whose values are saved with 16


Finding = str | RobauditError
"""A warning about odd values, or the error about impossible ones, which the spec accepts with
``run.as_given``."""


def accepted(findings: Iterable[Finding], *, as_given: bool) -> tuple[str, ...]:
    """The findings as warnings.

    Args:
        findings: about pixels or levels.
        as_given: whether to accept impossible values with a warning.

    Raises:
        RobauditError: something is impossible, and ``as_given`` is off.
    """
    texts = []
    for finding in findings:
        if isinstance(finding, RobauditError) and not as_given:
            override = "audit this as it is given: run.as_given: true, or " + (ESTIMATE + AS_GIVEN)
            raise type(finding)(finding.where, finding.what, finding.remedy + ", or " + override)
        texts.append(str(finding))
    return tuple(texts)


def within_unit(low: float, high: float) -> bool:
    """Whether pixels run within [0, 1], up to rounding."""
    return low >= -_ROUNDING and high <= 1 + _ROUNDING


def pixel_findings(where: str, low: float, high: float, *, scaled: bool) -> Iterator[Finding]:
    """Findings about the range of the pixels.

    Args:
        where: the data set.
        low, high: the smallest and the largest pixel.
        scaled: whether the spec sets the value of full intensity. Pixels may then exceed it;
            values on a byte scale are refused.
    """
    if within_unit(low, high):
        yield from _too_small_findings(where, high)
        return
    what = f"pixels run from {low:.3g} to {high:.3g}, not within [0, 1]"
    resampled = low >= -_OVERSHOOT and high <= 1 + _OVERSHOOT
    beyond_scale = scaled and max(-low, high) <= _LEAST_BYTE
    if resampled or beyond_scale:
        yield f"{where}: {what}, for which noise levels are meant"
    elif low >= 0 and _LEAST_BYTE < high <= _MOST_BYTE:
        yield DataError(
            where,
            f"{what}: they look like 0-255",
            "divide them by 255 (in a .npz: dataset.scale: 255)",
        )
    elif low < -_OVERSHOOT:
        remedy = (
            "give pixels that are not normalised, and mean and std for the model, which are "
            "applied after the noise"
        )
        yield DataError(where, f"{what}: they look normalised", remedy)
    else:
        yield DataError(
            where, what, "divide them by the value of full intensity (in a .npz: dataset.scale)"
        )


def _too_small_findings(where: str, high: float) -> Iterator[Finding]:
    """Findings about pixels within [0, 1] that use a small part of it.

    Args:
        where: the data set.
        high: the largest pixel.
    """
    # Divided by 255 twice, the brightest pixel is about 1/255.
    if 0 < high <= 2 / 255:
        yield f"{where}: pixels reach only {high:.3g}; they look scaled twice: check dataset.scale"
        return
    bits = _bits_of_camera(high)
    if bits is not None:
        remedy = f"multiply them by {2 ** (16 - bits)} (in a .npz: dataset.scale: {2**bits - 1})"
        what = (
            f"pixels reach only {high:.3g}, and noise levels are relative to 1: they look "
            f"like {bits} bits saved with 16"
        )
        yield f"{where}: {what}; {remedy}"


def _bits_of_camera(high: float) -> int | None:
    """The bits of a camera whose values were saved with 16, as the largest pixel suggests; None if
    it does not."""
    # A dark image of 8 bits has such a largest pixel, too.
    if abs(high * 255 - round(high * 255)) < _EIGHT_BITS:
        return None
    return next((bits for bits in _DEPTHS if high <= 2**bits / 2**16), None)


def mean_findings(mean: Sequence[float], std: Sequence[float], where: str) -> Iterator[Finding]:
    """A finding about a mean beyond the range of pixels in [0, 1]: 123.675 where 0.485 is usual.

    Args:
        mean, std: of the spec.
        where: the place of the mean, for messages.
    """
    largest = max(mean, default=0.0)
    if largest > 1:
        divided = []
        for key, values in (("mean", mean), ("std", std)):
            if values:
                divided.append(f"{key}: {[round(value / 255, 4) for value in values]}")
        what = (
            f"{largest:g} is more than the whole range of pixels in [0, 1]: it looks like a "
            "mean of 0-255"
        )
        yield SpecError(where, what, f"divide by 255: {', '.join(divided)}")


def level_findings(
    noises: Sequence[NoiseProcess], image: Tensor, sample_id: str
) -> Iterator[Finding]:
    """Findings about levels that cannot be meant for pixels in [0, 1]: 8 where 8/255 is usual.

    Levels are reported if they are standard deviations or radii above 1, and the largest moves
    pixels by more than half their range. From 2 on they are impossible. There is at most one
    finding for each noise.

    Args:
        noises: of the run; they fit the image.
        image: one with pixels in [0, 1] (channels, height, width).
        sample_id: its id.

    Raises:
        PluginError: the noise of a plugin fails.
    """
    for noise in noises:
        levels = [at for at in noise.levels if at.name in (LevelName.SIGMA, LevelName.EPS)]
        above_1 = sorted((at for at in levels if at.number > 1), key=lambda at: at.number)
        if not above_1:
            continue
        smallest = above_1[0]
        largest = above_1[-1]
        # The number alone does not tell: a Euclidean ball may well have a larger radius, and a kind
        # may scale its level.
        if _typical_change(noise, image, sample_id, largest.number) <= _HALF_RANGE:
            continue
        further = len(above_1) - 1
        comparison = f"is {smallest.number:g} times"
        if further:
            comparison = f"and {count(further, 'more level')} are more than"
        where = f"{noise.label} noise"
        what = (
            f"{smallest.name} {smallest.number:g} {comparison} the whole range of pixels in [0, 1]"
        )
        if largest.number < _LEAST_GREY:
            yield f"{where}: {what}"
        elif _LEAST_GREY <= smallest.number <= _MOST_GREY:
            yield SpecError(where, what, _likely_level(smallest.number))
        else:
            yield SpecError(where, what, "give levels for pixels in [0, 1]")


def _likely_level(level: float) -> str:
    """The text about the level that was probably meant: 5/255, or 5 %."""
    grey = f"{level:g}/255 = {level / 255:.3g}"
    if level > _MOST_PERCENT:
        return f"{grey} was probably meant: write {level:g}/255"
    return (
        f"{grey} or {level:g} % = {level / 100:g} was probably meant: write {level:g}/255 or "
        f"{level / 100:g}"
    )


def _typical_change(noise: NoiseProcess, image: Tensor, sample_id: str, level: float) -> float:
    """The root mean square of the change of a pixel."""
    source = noise.seeded(0, image.device, image.dtype)
    if noise.photos is not None:
        # The noise itself, before the file is rounded and made smaller.
        image = noise.photos.read(sample_id).pixels
        source = source.on_input()
    x = image[None]
    # In several blocks, because a block holds few draws of a large image.
    blocks = source.blocks(sample_id, _DRAWS, shape_of(image))
    changes = torch.cat([source.noisy(x, z, level, ids=[sample_id]) - x for z in blocks])
    return float(changes.square().mean().sqrt())
