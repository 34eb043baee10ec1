"""Check the units of pixels and noise levels: values impossible for pixels in [0, 1] are refused, odd ones warn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robaudit.errors import DataError, RobauditError, SpecError
from robaudit.levels import LevelName, NoiseLevel
from robaudit.noise.base import shape_of
from robaudit.noise.registry import Noise
from robaudit.text import count

_ROUNDING = 1e-6  # of pixels
_BEYOND = 0.25  # resampling overshoots [0, 1] by less; normalised pixels by more
_LEAST_BYTE, _MOST_BYTE = 64, 255  # pixels whose largest value lies between them look like bytes
_DRAWS, _HALF_RANGE = 4, 0.5  # of a noise whose level is above 1, to see what it does to pixels
_USUAL, _STEP = 0.5, 4.0  # a level as high is not remarkable, nor is one that is so many times another
_LEAST_GREY, _MOST_GREY = 2, 255  # levels that are likely to be grey levels; 1 to 2 are used for certificates


@dataclass(frozen=True, slots=True)
class Impossible:
    """Impossible values: the audit is refused unless the spec says ``run.as_given``.

    Attributes:
        where: the place, as the user knows it.
        what: what is wrong there.
        remedy: what would be right.
        error: the exception class.
    """

    where: str
    what: str
    remedy: str
    error: type[RobauditError]


Finding = str | Impossible
"""Odd values: a warning only."""


def accepted(findings: Iterable[Finding], *, as_given: bool) -> tuple[str, ...]:
    """The findings as warnings.

    Args:
        findings: about pixels or levels.
        as_given: accept impossible values with a warning.

    Raises:
        RobauditError: something is impossible, and ``as_given`` is off.
    """
    found = []
    for one in findings:
        if isinstance(one, Impossible) and not as_given:
            override = "audit this as it is given: run.as_given: true, or robaudit estimate --as-given"
            raise one.error(one.where, one.what, f"{one.remedy}, or {override}")
        found.append(f"{one.where}: {one.what}; {one.remedy}" if isinstance(one, Impossible) else one)
    return tuple(found)


def within_unit(low: float, high: float) -> bool:
    """Whether pixels run within [0, 1], up to rounding."""
    return low >= -_ROUNDING and high <= 1 + _ROUNDING


def pixel_findings(where: str, low: float, high: float, *, scaled: bool) -> Iterator[Finding]:
    """What is wrong with the range of the pixels.

    Args:
        where: the data set.
        low, high: the smallest and the largest pixel.
        scaled: the spec says the value of full intensity. Pixels may go beyond it, but not as far as bytes go beyond 1.
    """
    if within_unit(low, high):
        if 0 < high <= 2 / 255:
            yield f"{where}: pixels reach only {high:.3g}; they look scaled twice: check dataset.scale"
        return
    what = f"pixels run from {low:.3g} to {high:.3g}, not within [0, 1]"
    if (scaled and max(-low, high) <= _LEAST_BYTE) or (low >= -_BEYOND and high <= 1 + _BEYOND):
        yield f"{where}: {what}, for which noise levels are meant"
    elif low >= 0 and _LEAST_BYTE < high <= _MOST_BYTE:
        yield Impossible(where, f"{what}: they look like 0-255", "divide them by 255 (in a .npz: dataset.scale: 255)", DataError)
    elif low < -_BEYOND:
        remedy = "give pixels that are not normalised, and mean and std for the model, which are applied after the noise"
        yield Impossible(where, f"{what}: they look normalised", remedy, DataError)
    else:
        yield Impossible(where, what, "divide them by the value of full intensity (in a .npz: dataset.scale)", DataError)


def level_findings(noises: Sequence[Noise], image: Tensor, sample_id: str) -> Iterator[Finding]:
    """Levels that cannot be meant for pixels in [0, 1]: 8 where 8/255 is usual.

    A level is reported if it is a standard deviation or radius above 1, no smaller levels lead up to it, and the noise moves pixels by
    more than half their range (a Euclidean ball may well have a larger radius, and a kind may scale its level). From 2 on it
    is impossible. There is at most one finding for each noise.

    Args:
        noises: of the run; they fit the image.
        image: one with pixels in [0, 1] (channels, height, width).
        sample_id: its id.

    Raises:
        NoiseError: the noise of a plugin fails.
    """
    for noise in noises:
        beyond = [at for at in _unprepared(noise.levels) if at.number > 1 and at.name in (LevelName.SIGMA, LevelName.EPS)]
        if beyond and _typical_change(noise, image, sample_id, beyond[0].number) > _HALF_RANGE:
            at, more = beyond[0], len(beyond) - 1
            is_ = f"and {count(more, 'more level')} are more than" if more else f"is {at.number:g} times"
            where, what = f"{noise.label} noise", f"{at.name} {at.number:g} {is_} the whole range of pixels in [0, 1]"
            if beyond[-1].number < _LEAST_GREY:
                yield f"{where}: {what}"
            elif _LEAST_GREY <= at.number <= _MOST_GREY:
                meant = f"{at.number:g}/255 = {at.number / 255:.3g} was probably meant: write {at.number:g}/255"
                yield Impossible(where, what, meant, SpecError)
            else:
                yield Impossible(where, what, "give levels for pixels in [0, 1]", SpecError)


def _unprepared(levels: Sequence[NoiseLevel]) -> list[NoiseLevel]:
    """The levels that no smaller ones lead up to: a grid from 0.3 to 10, say, has large levels on purpose."""
    found, reached = list[NoiseLevel](), _USUAL
    for at in sorted(levels, key=lambda at: at.number):
        if at.number <= reached:
            reached = max(reached, _STEP * at.number)
        else:
            found.append(at)
    return found


def _typical_change(noise: Noise, image: Tensor, sample_id: str, level: float) -> float:
    """The root mean square of the change of a pixel."""
    source, x = noise.source(0, image.device, image.dtype), image[None]
    draws = source.blocks(sample_id, _DRAWS, shape_of(image))  # of a large image, a block holds fewer
    changes = torch.cat([source.noisy(x, z, level, ids=[sample_id]) - x for z in draws])
    return float(changes.square().mean().sqrt())
