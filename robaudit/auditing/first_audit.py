"""The images and draws of a first audit, for about ten minutes on this machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from robaudit.auditing.expected import Speed
from robaudit.engine import registry
from robaudit.engine.registry import tasks_of
from robaudit.progress import duration_text
from robaudit.spec.first_spec import MOST_DRAWS, Given
from robaudit.spec.model import AuditSpec

SECONDS = 600.0
"""The time that a first audit takes at most, where its numbers are free."""

DRAWS = (MOST_DRAWS, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1)
"""The numbers of draws to choose from: an audit grows by doubling them."""

# The error of a mean over images like these falls with the images; further draws of the same
# images hardly reduce it. So draws are reduced first, but not to where an image says nothing.
_ENOUGH_DRAWS = 8
# With 100 images a mean of 0.9 is known to within 0.06; with fewer, hardly any gate is decided.
_FEWEST_IMAGES = 100
_STEP = 10  # images, for a round number

_TYPICAL_MEAN = 0.9
_Z = 1.96  # half of a 95 % interval, in standard errors


class AuditSize(NamedTuple):
    """Number of images, and number of noisy copies of each."""

    images: int
    draws: int


@dataclass(frozen=True, slots=True)
class FirstAudit:
    """The proposal for a first audit.

    Attributes:
        images: how many of the images to take; None: all that the spec has.
        draws: number of draws; None: those of the spec.
        notes: its time and what to expect of it.
        comment: on the number of draws, for the spec; empty: none.
    """

    images: int | None
    draws: int | None
    notes: tuple[str, ...]
    comment: str = ""


def first_audit(spec: AuditSpec, images: int, speed: Speed, given: Given) -> FirstAudit:
    """The largest audit of these images that takes ten minutes at most on this machine.

    Args:
        spec: with the most images and draws, or those that the user gives.
        images: number of images that it has.
        speed: of this machine.
        given: the numbers that stay as they are.
    """
    own_draws = _draws_of_reference(spec)
    if given.draws:
        seconds = {own_draws: _seconds_of_image(spec, speed)}
    else:
        seconds = {draws: _seconds_of_image(_with_draws(spec, draws), speed) for draws in DRAWS}
    size = largest_size(seconds, images, all_images=given.images)
    chosen = spec if given.draws else _with_draws(spec, size.draws)
    tasks = tasks_of(chosen)
    expected = speed.expected(tasks, [size.images] * len(tasks))
    time = expected.text
    comment = ""
    if size.draws < own_draws:
        of_all = duration_text(size.images * seconds[own_draws])
        time += f"; {own_draws:,} copies of each: about {of_all}"
        comment = (
            f"draws: noisy copies of each image; {size.draws} take about "
            f"{duration_text(expected.seconds)} at the speed that robaudit init measured, "
            f"{own_draws:,} about {of_all}"
        )
    if expected.seconds > SECONDS:
        time += f"; --budget {SECONDS / 60:.0f}m ends it earlier, with what it has by then"
    notes = (time, expected_intervals(size)) if size.draws else (time,)
    return FirstAudit(
        images=size.images if size.images < images else None,
        draws=None if given.draws else size.draws,
        notes=notes,
        comment=comment,
    )


def _draws_of_reference(spec: AuditSpec) -> int:
    """The number of draws of the reference estimator; 0 if the spec has none, or is without it."""
    for estimator in registry.build(spec.estimators).values():
        if isinstance(estimator, registry.reference_class()):
            draws = getattr(estimator, "draws", 0)
            return draws if isinstance(draws, int) else 0
    return 0


def _with_draws(spec: AuditSpec, draws: int) -> AuditSpec:
    """The spec with another number of draws of its first estimator."""
    first, *others = spec.estimators
    changed = (registry.with_draws(first, draws), *others)
    return spec.model_copy(update={"estimators": changed})


def _seconds_of_image(spec: AuditSpec, speed: Speed) -> float:
    return sum(map(speed.passes, tasks_of(spec))) / speed.rate


def largest_size(seconds: Mapping[int, float], images: int, *, all_images: bool) -> AuditSize:
    """The largest size that fits into ten minutes, or the smallest acceptable one if none does.

    Draws are reduced to 8, then images to 100, and at last draws to 1.

    Args:
        seconds: of an image by its number of draws, from the most to the fewest.
        images: number of images, at least 1.
        all_images: whether to keep all images.
    """
    fewest = images if all_images else min(images, _FEWEST_IMAGES)
    sizes = list(_sizes(tuple(seconds), images, fewest))
    fitting = (size for size in sizes if size.images * seconds[size.draws] <= SECONDS)
    return next(fitting, sizes[-1])


def _sizes(draws: tuple[int, ...], images: int, fewest: int) -> Iterator[AuditSize]:
    """All acceptable sizes, each smaller than the one before."""
    # Where the user gives the number of draws there is only this one.
    many = tuple(number for number in draws if number >= _ENOUGH_DRAWS) or draws[:1]
    for number in many:
        yield AuditSize(images, number)
    largest_round = (images - 1) // _STEP * _STEP
    for fewer_images in range(largest_round, fewest - 1, -_STEP):
        yield AuditSize(fewer_images, many[-1])
    for number in draws[len(many) :]:
        yield AuditSize(fewest, number)


def expected_intervals(size: AuditSize) -> str:
    """The text of the errors to expect of the mean, as half widths of 95 % intervals near 0.9.

    For these images the variance is p (1 - p) / (images draws), and for images like these
    p (1 - p) / images. Both are the largest possible: the first is smaller where the images differ,
    the second where all images have the same p.
    """
    variance = _TYPICAL_MEAN * (1.0 - _TYPICAL_MEAN)
    of_draws = _Z * math.sqrt(variance / (size.images * size.draws))
    of_images = _Z * math.sqrt(variance / size.images)
    name = registry.reference_class().quantity.name
    these = "this image" if size.images == 1 else f"these {size.images:,} images"
    return (
        f"if the mean {name} is near {_TYPICAL_MEAN}, expect about +- {of_draws:.1g} for "
        f"{these} and up to +- {of_images:.1g} for images like these (95 % intervals)"
    )
