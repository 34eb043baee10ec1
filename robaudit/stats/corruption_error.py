"""Accuracy by corruption and severity, and the mean error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

import numpy as np
from pydantic import Field, PlainSerializer

from robaudit.errors import RunError, did_you_mean
from robaudit.estimates import Bounds, Estimate
from robaudit.levels import LevelName
from robaudit.numerics.image_intervals import Floats
from robaudit.plugins import reference
from robaudit.records import Inline, Nested, Record, published
from robaudit.runs.run import Run
from robaudit.runs.table import Columns, common_names
from robaudit.stats.bootstrap import BOOTSTRAP, percentiles

_LEVELS = (1.0, 2.0, 3.0, 4.0, 5.0)
"""The five severities of the corruption benchmarks (Hendrycks and Dietterich, 2019)."""
_ALL = "all corruptions"  # the key of the mean; no noise's name has a space

Errors = Mapping[str, Sequence[float]]
"""The share of images classified wrongly at severities 1 to 5, by corruption."""


Level = Annotated[float, PlainSerializer(lambda level: f"{level:g}", return_type=str)]
Accuracy = Annotated[Estimate, Nested("Accuracy", "value", "lower", "upper")]


@dataclass(frozen=True, slots=True)
class CorruptionReport(Record):
    """Accuracy by noise and level, of one estimator that counts votes.

    Attributes:
        estimator: name of the estimator.
        clean: accuracy without noise.
        cells: the accuracy by noise and level, in the run's order: the mean over the labelled
            images of the share of noisy copies that are classified correctly, with its 95 %
            interval for the population.
        images: for each noise measured at all five severities, the share of each image's noisy
            copies that are misclassified, over all severities (n,).
    """

    estimator: str
    clean: Annotated[float, Field(serialization_alias="clean_accuracy")]
    cells: Annotated[Mapping[str, Mapping[Level, Accuracy]], Field(serialization_alias="accuracy")]
    images: Annotated[Mapping[str, Floats], Field(exclude=True)]

    @property
    def levels(self) -> list[float]:
        """Every level of any of the noises, ascending."""
        levels: set[float] = set()
        for by_level in self.cells.values():
            levels.update(by_level)
        return sorted(levels)

    @property
    def errors(self) -> dict[str, list[float]]:
        """Error by noise, for noises measured at all five severities."""
        return {
            label: [1 - by_level[level].value for level in _LEVELS]
            for label, by_level in self.cells.items()
            if set(by_level) == set(_LEVELS)
        }

    @property
    @published(after="accuracy")
    def mean_error(
        self,
    ) -> Annotated[Estimate | None, Inline(mean_error="value", mean_error_interval="bounds")]:
        """The :func:`mean_error` with its 95 % bootstrap interval for the population, without one
        for a single image.

        None without errors.
        """
        if not self.errors:
            return None
        return Estimate.population(mean_error(self.errors), self._intervals().get(_ALL), BOOTSTRAP)

    def mean_errors(self) -> dict[str, Estimate]:
        """The mean error by noise, with its bootstrap interval, pointwise."""
        intervals = self._intervals()
        return {
            label: Estimate.population(sum(errors) / len(errors), intervals.get(label), BOOTSTRAP)
            for label, errors in self.errors.items()
        }

    def _intervals(self) -> dict[str, Bounds | None]:
        """The bootstrap intervals of the mean error by noise, and of their mean; empty without
        images."""
        if not self.images:
            return {}
        # All images have the same noises, so each noise counts the same in the mean of an image.
        mean: Floats = np.mean(list(self.images.values()), axis=0)
        errors = {**self.images, _ALL: mean}
        images = len(mean)

        def mean_errors(weights: Floats) -> dict[str, Floats]:
            return {label: weights @ error / images for label, error in errors.items()}

        return percentiles(images, mean_errors)


def corruption_report(run: Run, estimator: str | None = None) -> CorruptionReport:
    """Accuracy by noise and severity.

    Args:
        run: a finished run.
        estimator: an estimator that counts votes; default: the first.

    Raises:
        RunError: it has no labels, no such estimator, or no noise whose level is a severity.
    """
    info = run.info
    where = str(run.path)
    entries = [entry for entry in info.noisy_accuracy if entry.level_name == LevelName.SEVERITY]
    if info.clean_accuracy is None or not entries:
        what = "has no accuracy under noise whose level is a severity"
        if info.clean_accuracy is None:
            what = "has no labels"
        raise RunError(
            where,
            what,
            f"audit labelled images with {reference()} under noise of the kind corruption or "
            "corrupted_set",
        )
    # run.json has the accuracies of every estimator that counts votes, in the spec's order.
    names = list(dict.fromkeys(entry.estimator for entry in entries))
    chosen = names[0] if estimator is None else estimator
    if chosen not in names:
        raise RunError(where, f"has no votes of {chosen!r}", did_you_mean(chosen, names))
    cells: dict[str, dict[float, Estimate]] = {}
    for entry in entries:
        if entry.estimator == chosen:
            bounds = (entry.lower, entry.upper)
            accuracy = Estimate.population(entry.value, bounds, "Gaffke's bounds over images")
            cells.setdefault(entry.noise, {})[entry.level] = accuracy
    images = _image_errors(run, chosen, cells)
    return CorruptionReport(chosen, info.clean_accuracy.value, cells, images)


def _image_errors(
    run: Run, estimator: str, cells: Mapping[str, Mapping[float, Estimate]]
) -> dict[str, Floats]:
    """The mean error over the severities of each image (images,), by noise.

    Only noises with all five severities count, and only labelled images with votes at all levels of
    all of them: the bootstrap draws the same images for every noise.
    """
    complete = [label for label, by_level in cells.items() if set(by_level) == set(_LEVELS)]
    # Images without a label have no draws for it.
    voted = {
        (key.noise, key.at.level): result.take(result.label_draws > 0)
        for key, result in run.table.items()
        if key.estimator == estimator
    }
    columns: list[Columns] = []
    for noise in complete:
        columns += [voted[noise, level] for level in _LEVELS]
    names = common_names(columns) if columns else []
    if not names:
        return {}
    by_column = np.array([result.of_images(names).label_errors for result in columns])
    errors = by_column.reshape(len(complete), len(_LEVELS), -1).mean(1)  # (noises, images)
    return dict(zip(complete, errors, strict=True))


def mean_error(errors: Errors) -> float:
    """The mean error over corruptions and severities, each with the same weight: the number
    reported for CIFAR-10-C (Hendrycks and Dietterich, 2019)."""
    return fmean(fmean(values) for values in errors.values())
