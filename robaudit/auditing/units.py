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
_BEYOND = 0.25  # resampling overshoots [0, 1] by less; normalised pixels by more
# pixels whose largest value lies between them look like bytes
_LEAST_BYTE = 64
_MOST_BYTE = 255
# of a noise whose level is above 1, to see what it does to pixels
_DRAWS = 4
_HALF_RANGE = 0.5
# levels that are likely to be grey levels; 1 to 2 are used for certificates
_LEAST_GREY = 2
_MOST_GREY = 255
_EIGHT_BITS = 1e-3  # of a step of 8 bits, by which a pixel may differ from its value
_MOST_PERCENT = 50  # levels up to here may be percentages, too
_DEPTHS = (10, 12, 14)  # bits of cameras whose values are saved with 16


Finding = str | RobauditError
"""A warning about odd values, or the error about impossible ones, which the spec accepts with
``run.as_given``."""


def accepted(findings: Iterable[Finding], *, as_given: bool) -> tuple[str, ...]:
    """The findings as warnings.

    Args:
        findings: about pixels or levels.
        as_given: accept impossible values with a warning.

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
    """What is wrong with the range of the pixels.

    Args:
        where: the data set.
        low, high: the smallest and the largest pixel.
        scaled: the spec says the value of full intensity. Pixels may go beyond it, but not as far
            as bytes go beyond 1.
    """
    if within_unit(low, high):
        if 0 < high <= 2 / 255:
            yield (
                f"{where}: pixels reach only {high:.3g}; they look scaled twice: check "
                "dataset.scale"
            )
        elif (bits := _depth(high)) is not None:
            remedy = (
                f"multiply them by {2 ** (16 - bits)} (in a .npz: dataset.scale: {2**bits - 1})"
            )
            what = (
                f"pixels reach only {high:.3g}, and noise levels are relative to 1: they look "
                f"like {bits} bits saved with 16"
            )
            yield f"{where}: {what}; {remedy}"
        return
    what = f"pixels run from {low:.3g} to {high:.3g}, not within [0, 1]"
    if (scaled and max(-low, high) <= _LEAST_BYTE) or (low >= -_BEYOND and high <= 1 + _BEYOND):
        yield f"{where}: {what}, for which noise levels are meant"
    elif low >= 0 and _LEAST_BYTE < high <= _MOST_BYTE:
        yield DataError(
            where,
            f"{what}: they look like 0-255",
            "divide them by 255 (in a .npz: dataset.scale: 255)",
        )
    elif low < -_BEYOND:
        remedy = (
            "give pixels that are not normalised, and mean and std for the model, which are "
            "applied after the noise"
        )
        yield DataError(where, f"{what}: they look normalised", remedy)
    else:
        yield DataError(
            where, what, "divide them by the value of full intensity (in a .npz: dataset.scale)"
        )


def _depth(high: float) -> int | None:
    """The number of bits that the largest pixel suggests, where it is less than 16 bits have, and
    no value of 8 bits; else None."""
    if abs(high * 255 - round(high * 255)) < _EIGHT_BITS:
        return None
    return next((bits for bits in _DEPTHS if high <= 2**bits / 2**16), None)


def mean_findings(mean: Sequence[float], std: Sequence[float], where: str) -> Iterator[Finding]:
    """A mean that is beyond the range of pixels in [0, 1]: 123.675 where 0.485 is usual.

    Args:
        mean, std: of the spec.
        where: the place of the mean, for messages.
    """
    largest = max(mean, default=0.0)
    if largest > 1:
        texts = (
            f"{key}: {[round(value / 255, 4) for value in values]}"
            for key, values in (("mean", mean), ("std", std))
            if values
        )
        what = (
            f"{largest:g} is more than the whole range of pixels in [0, 1]: it looks like a "
            "mean of 0-255"
        )
        yield SpecError(where, what, f"divide by 255: {', '.join(texts)}")


def level_findings(
    noises: Sequence[NoiseProcess], image: Tensor, sample_id: str
) -> Iterator[Finding]:
    """Levels that cannot be meant for pixels in [0, 1]: 8 where 8/255 is usual.

    Levels are reported if they are standard deviations or radii above 1, and the largest moves
    pixels by more than half their range (a Euclidean ball may well have a larger radius, and a kind
    may scale its level). From 2 on they are impossible. There is at most one finding for each
    noise.

    Args:
        noises: of the run; they fit the image.
        image: one with pixels in [0, 1] (channels, height, width).
        sample_id: its id.

    Raises:
        PluginError: the noise of a plugin fails.
    """
    for noise in noises:
        levels = (
            at
            for at in noise.levels
            if at.name in (LevelName.SIGMA, LevelName.EPS) and at.number > 1
        )
        beyond = sorted(levels, key=lambda at: at.number)
        if not beyond or _typical_change(noise, image, sample_id, beyond[-1].number) <= _HALF_RANGE:
            continue
        at = beyond[0]
        more = len(beyond) - 1
        is_ = (
            f"and {count(more, 'more level')} are more than" if more else f"is {at.number:g} times"
        )
        where = f"{noise.label} noise"
        what = f"{at.name} {at.number:g} {is_} the whole range of pixels in [0, 1]"
        if beyond[-1].number < _LEAST_GREY:
            yield f"{where}: {what}"
        elif _LEAST_GREY <= at.number <= _MOST_GREY:
            yield SpecError(where, what, _meant(at.number))
        else:
            yield SpecError(where, what, "give levels for pixels in [0, 1]")


def _meant(level: float) -> str:
    """What a level was probably meant to be: 5/255, or 5 %."""
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
    x = image[None]
    # of a large image, a block holds fewer
    draws = source.blocks(sample_id, _DRAWS, shape_of(image))
    changes = torch.cat([source.noisy(x, z, level, ids=[sample_id]) - x for z in draws])
    return float(changes.square().mean().sqrt())
