"""Robustness and accuracy as curves over the noise level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from robaudit.documents import Document
from robaudit.errors import RunError
from robaudit.levels import LevelChoice, NoiseLevel
from robaudit.quantities import CONFIDENCE, Quantity
from robaudit.stats.groups import quantity_of
from robaudit.stats.run import Run
from robaudit.stats.summary import GroupSummary, Mean, NoisyAccuracy, Share, summarise


@dataclass(frozen=True, slots=True)
class LevelPoint(Document):
    """One level of a noise.

    Attributes:
        at: the level.
        images: how many have a finite value.
        robustness: their mean, in the unit of the quantity.
        accuracy: share of noisy copies classified as labelled; None without labels or votes.
    """

    members = "level_name=at.name at.level images robustness accuracy"

    at: NoiseLevel
    images: int
    robustness: Mean
    accuracy: NoisyAccuracy | None


@dataclass(frozen=True, slots=True)
class LevelCurve(Document):
    """One result over the levels of one noise.

    Attributes:
        estimator: name of the result.
        noise: label of the noise.
        quantity: what is measured.
        clean: accuracy without noise, on the images of the weakest level; None without labels.
        points: from weak to strong.
    """

    members = "estimator noise quantity clean_accuracy=clean points"

    estimator: str
    noise: str
    quantity: Quantity
    clean: Share | None
    points: tuple[LevelPoint, ...]


def level_curves(run: Run, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()) -> tuple[LevelCurve, ...]:
    """A curve for each result and noise, in the run's order; a noise with a single level gives a curve of one point.

    Scores of the clean image have no curve: they do not depend on noise.

    Args:
        run: a finished run.
        estimators, levels: only these.

    Raises:
        RunError: the run has no such estimator or level, or no result that belongs to a level.
    """
    groups = {group.key: group for group in summarise(run.frame, run.quantities)}
    curves: dict[tuple[str, str], list[GroupSummary]] = {}
    for key in run.groups(estimators, levels):
        if key.at.level is not None and key.quantity != CONFIDENCE.name:
            curves.setdefault((key.estimator, key.noise), []).append(groups[key])
    if not curves:
        raise RunError(str(run.path), "has no result at a noise level", "audit with mc at several levels, such as --sigma 0.05 --sigma 0.1")
    return tuple(_curve(sorted(points, key=lambda group: group.key.at.strength), run) for points in curves.values())


def _curve(groups: Sequence[GroupSummary], run: Run) -> LevelCurve:
    key = groups[0].key
    points = tuple(LevelPoint(group.key.at, group.images, group.mean, group.noisy_accuracy) for group in groups)
    return LevelCurve(key.estimator, key.noise, quantity_of(key.quantity, run.quantities), groups[0].clean_accuracy, points)
