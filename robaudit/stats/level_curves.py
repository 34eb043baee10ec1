"""Robustness and accuracy as curves over the noise level."""

from __future__ import annotations

from collections.abc import Sequence

from robaudit.errors import RunError
from robaudit.levels import LevelChoice
from robaudit.plugins import reference
from robaudit.quantities import CONFIDENCE
from robaudit.runs.run import Run, chosen
from robaudit.settings import Wording
from robaudit.stats.summary import GroupSummary, summary_of

LevelCurve = tuple[GroupSummary, ...]
"""A result under a noise, from weak to strong."""


def level_curves(
    run: Run, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()
) -> list[LevelCurve]:
    """A curve for each result and noise, in the run's order.

    A noise with a single level gives a curve of one point. Scores of the clean image have no curve:
    they do not depend on noise.

    Args:
        run: a finished run.
        estimators, levels: only these results.

    Raises:
        RunError: the run has no such estimator or level, or no result that belongs to a level.
    """
    groups = {group.key: group for group in summary_of(run)}
    # By estimator and noise: levels of different noises have no common scale.
    curves: dict[tuple[str, str], list[GroupSummary]] = {}
    for key in chosen(groups, estimators, levels, str(run.path)):
        if key.at.level is not None and key.quantity != CONFIDENCE.name:
            curves.setdefault((key.estimator, key.noise), []).append(groups[key])
    if not curves:
        raise RunError(
            str(run.path),
            "has no result at a noise level",
            f"audit with {reference()} at several levels, such as "
            + Wording("--sigma 0.05 --sigma 0.1", "sigma=[0.05, 0.1]"),
        )

    def strength(point: GroupSummary) -> float:
        return point.key.at.strength

    return [tuple(sorted(points, key=strength)) for points in curves.values()]
