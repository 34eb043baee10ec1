"""Confusion matrices under noise, from the votes of the noisy copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated

import numpy as np
from pydantic import Field

from robaudit.errors import RunError
from robaudit.estimates import Estimate
from robaudit.levels import LevelChoice
from robaudit.numerics.image_intervals import Floats
from robaudit.numerics.intervals import mean_interval
from robaudit.plugins import reference
from robaudit.quantities import IntervalKind
from robaudit.records import Inline, Record, published
from robaudit.runs.groups import GroupKey
from robaudit.runs.run import Run
from robaudit.runs.table import NO_CLASS
from robaudit.settings import BY

MOST_TURNS = 100
"""The most turns of a matrix: 1,000 classes have a million pairs; nobody reads the rare ones."""


@dataclass(frozen=True)
class Turn(Record):
    """A class of images and another class into which noise turns them.

    Attributes:
        start, to: the class of the images, and the class of their noisy copies.
        images: number of images of class ``start``.
        share: mean over these images of the share of noisy copies that are classified as ``to``.
        shares: that share for each image.
    """

    start: int
    to: int
    images: int
    share: float
    shares: Annotated[Floats, Field(exclude=True)] = field(repr=False, compare=False)

    @cached_property
    @published(after="share")
    def estimate(self) -> Annotated[Estimate, Inline("lower", "upper")]:
        """The share with its 95 % interval for the population of images of the class; computed on
        first use."""
        return Estimate.population(
            self.share, mean_interval(self.shares, 0.0, 1.0), "Gaffke's bounds over images"
        )


@dataclass(frozen=True, slots=True)
class Confusion(Record):
    """Classes of images against classes of their noisy copies, of one estimator at one noise level.

    Attributes:
        key: estimator, noise level and quantity.
        by: whether the class of an image is its label or the class predicted without noise.
        classes: indices of the classes with images or votes, ascending.
        images: number of images of each class.
        shares: ``shares[i][j]`` is the mean over the images of class i of the share of noisy copies
            classified as j; NaN without images.
        turns: pairs of different classes with votes, the largest share first; at most
            :data:`MOST_TURNS`.
        pairs: number of all such pairs.
    """

    key: Annotated[GroupKey, Inline()]
    by: str
    classes: tuple[int, ...]
    images: tuple[int, ...]
    shares: tuple[tuple[float, ...], ...]
    turns: tuple[Turn, ...]
    pairs: int


def confusions(
    run: Run,
    estimators: Sequence[str] = (),
    levels: LevelChoice | Sequence[float] = (),
    by: str | None = None,
) -> tuple[Confusion, ...]:
    """A matrix for each result with votes, in the run's order.

    Results that stop adaptively are left out: stopping biases their shares.

    Args:
        run: a finished run.
        estimators, levels: only these results.
        by: the class of an image, label or predicted. Default: the predicted class, because the
            copies that leave it are what noise changes; by label, an image that is misclassified
            without noise and never flips counts as turned.

    Raises:
        RunError: the run has no such estimator or level, no result has votes, or ``by`` is label
            and no image has a label.
    """
    where = str(run.path)
    labelled = any((columns.label != NO_CLASS).any() for columns in run.table.values())
    kind = by or "predicted"
    chosen = {columns.key: columns.classes for columns in run.groups(estimators, levels).values()}
    # By result and class of the image, the vote shares of each image (classes,).
    shares: dict[GroupKey, dict[int, list[Floats]]] = {}
    for row in run.rows:
        key = GroupKey.from_row(row)
        if row.votes is None or not row.votes.draws:
            continue
        stops_adaptively = row.interval.kind is IntervalKind.CONFIDENCE_SEQUENCE
        if stops_adaptively or key not in chosen:
            continue
        # A result whose images have no class still has votes, so it is entered before the check.
        members = shares.setdefault(key, {})
        start = row.label if kind == "label" else row.predicted
        if start is not None:
            counts = np.asarray(row.votes.counts, dtype=np.float64)
            missing = chosen[key] - len(counts)
            of_image = np.pad(counts / row.votes.draws, (0, missing))
            members.setdefault(start, []).append(of_image)
    if not shares:
        raise RunError(
            where,
            "has no votes of a fixed number of noisy copies",
            f"audit with {reference()} at a noise level",
        )
    if by == "label" and not labelled:
        raise RunError(
            where, "has no labels", "count by the predicted class: " + BY.set_to("predicted")
        )
    return tuple(_confusion(key, shares[key], kind) for key in chosen if key in shares)


def _confusion(key: GroupKey, members: Mapping[int, Sequence[Floats]], by: str) -> Confusion:
    """The matrix of one result from the vote shares of the images of each class."""
    # For each class with images, (images, classes).
    voted = {index: np.array(shares) for index, shares in sorted(members.items())}
    present = set(voted)
    for shares in voted.values():
        present.update(np.flatnonzero(shares.any(0)).tolist())
    # Only classes that occur: most of 1,000 classes have neither images nor votes in a small run.
    classes = sorted(present)
    table = np.full((len(classes), len(classes)), np.nan)
    for i, index in enumerate(classes):
        if index in voted:
            means = voted[index].mean(0)
            # A label may lie beyond the classes of the network, which never vote for it.
            table[i] = [means[j] if j < len(means) else 0.0 for j in classes]
    rows, columns = np.nonzero(np.nan_to_num(table))
    places = [(i, j) for i, j in zip(rows, columns, strict=True) if i != j]
    places.sort(key=lambda place: -table[place])
    turns: list[Turn] = []
    for row, column in places[:MOST_TURNS]:
        start = classes[row]
        to = classes[column]
        turns.append(_turn(start, to, voted[start][:, to]))
    counts = tuple(len(members.get(index, ())) for index in classes)
    lines = tuple(tuple(map(float, line)) for line in table)
    return Confusion(key, by, tuple(classes), counts, lines, tuple(turns), len(places))


def _turn(start: int, to: int, shares: Floats) -> Turn:
    """The turn from one class to another, with the share of each image (images,)."""
    return Turn(start, to, len(shares), float(shares.mean()), shares)
