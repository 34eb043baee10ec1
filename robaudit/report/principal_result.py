"""The result that represents the runs in figures of a single result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from robaudit.errors import NothingLeftError
from robaudit.report.sections import Entry, SectionRequest
from robaudit.runs.groups import GroupKey
from robaudit.runs.run import Run
from robaudit.stats.summary import GroupSummary, summary_of

T = TypeVar("T")


def same_result(entries: Sequence[Entry[T]], key_of: Callable[[T], GroupKey]) -> list[Entry[T]]:
    """An entry of each run, all of the same result: the first, at the strongest level of its first
    noise in the first run."""
    keys = [key_of(entry.record) for entry in entries if entry.name == entries[0].name]
    first = keys[0]
    alike = [key for key in keys if (key.estimator, key.noise) == (first.estimator, first.noise)]
    chosen = max(alike, key=lambda key: key.at.strength)
    return [entry for entry in entries if key_of(entry.record) == chosen]


def principal(groups: Sequence[GroupSummary]) -> str:
    """The estimator that answers the question: the first of a probability with intervals, else the
    first."""
    # a probability answers how often noise changes the prediction; approximations have no interval
    for group in groups:
        if group.quantity.unit == "probability" and group.with_interval:
            return group.key.estimator
    return groups[0].key.estimator


def one_result(runs: Sequence[Run], request: SectionRequest) -> SectionRequest:
    """The request, narrowed to the result that represents the runs: of the :func:`principal`
    estimator of the first.

    Of the noise levels, the strongest of the first noise: levels of different noises cannot be
    compared.

    Raises:
        RunError: a run lacks the estimator or noise level.
        NothingLeftError: the runs have no result in common.
    """
    known = [run.groups(request.estimators, request.levels) for run in runs]
    common = [
        group for group in summary_of(runs[0]) if all(group.key in groups for groups in known)
    ]
    if not common:
        where = ", ".join(str(run.path) for run in runs)
        remedy = "audit the same estimators and noise levels"
        raise NothingLeftError(
            where,
            "have no result in common to draw" if len(runs) > 1 else "has no results to draw",
            remedy,
        )
    chosen = principal(common)
    keys = [group.key for group in common if group.key.estimator == chosen]
    levels = [key.at for key in keys if key.noise == keys[0].noise]
    at = max(levels, key=lambda level: level.strength)
    return replace(request, estimators=(chosen,), levels=at.choice)
