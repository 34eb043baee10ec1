"""Accuracy by corruption and severity, and the mean error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from robaudit.errors import RunError, did_you_mean
from robaudit.levels import LevelName
from robaudit.numerics.images import Bounds, Floats
from robaudit.records import Record, json_values
from robaudit.runs.frame import common_names
from robaudit.runs.run import Run
from robaudit.stats.bootstrap import percentiles
from robaudit.text import Names

_LEVELS = (1.0, 2.0, 3.0, 4.0, 5.0)
_ALL = "all corruptions"

Errors = Mapping[str, Sequence[float]]
"""By corruption, the share of images classified wrongly at severity 1 to 5."""


@dataclass(frozen=True, slots=True)
class AccuracyCell:
    """Accuracy under one noise at one level.

    Attributes:
        value: share of the labelled images' noisy copies that are classified correctly, a mean over the images.
        lower, upper: 95 % interval, for the population.
    """

    value: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class CorruptionReport(Record):
    """Accuracy by noise and level, of one estimator that counts votes.

    Attributes:
        estimator: its name.
        clean: accuracy without noise.
        cells: by noise label and level, in the run's order.
        images: by noise measured at all five severities, the share of each image's noisy copies that are misclassified, over all severities
            (n,).
    """

    estimator: str
    clean: float
    cells: Mapping[str, Mapping[float, AccuracyCell]]
    images: Mapping[str, Floats]

    @property
    def levels(self) -> list[float]:
        """Every level of any of the noises, ascending."""
        return sorted({level for by_level in self.cells.values() for level in by_level})

    @property
    def errors(self) -> dict[str, list[float]]:
        """Error by noise, for noises measured at all five severities."""
        return {
            label: [1 - by_level[level].value for level in _LEVELS]
            for label, by_level in self.cells.items()
            if set(by_level) == set(_LEVELS)
        }

    @property
    def mean_error_interval(self) -> Bounds | None:
        """The 95 % bootstrap interval of :func:`mean_error` for the population; None for a single image, or without errors."""
        return self.error_intervals().get(_ALL)

    def error_intervals(self) -> dict[str, Bounds | None]:
        """The bootstrap intervals of the mean error by noise, pointwise."""
        if not self.images:
            return {}
        mean: Floats = np.mean(list(self.images.values()), axis=0)
        errors, images = {**self.images, _ALL: mean}, len(mean)
        return percentiles(images, lambda drawn: {label: drawn @ each / images for label, each in errors.items()})

    def document(self, names: Names | None = None) -> dict[str, Any]:
        """As JSON values."""
        return {
            "estimator": self.estimator,
            "clean_accuracy": self.clean,
            "accuracy": json_values(self.cells),
            "mean_error": mean_error(self.errors) if self.errors else None,
            "mean_error_interval": self.mean_error_interval,
        }


def corruption_report(run: Run, estimator: str | None = None) -> CorruptionReport:
    """Accuracy by noise and severity.

    Args:
        run: a finished run.
        estimator: an estimator that counts votes; None: the first.

    Raises:
        RunError: it has no labels, no such estimator, or no noise whose level is a severity.
    """
    info, where = run.info, str(run.path)
    entries = [entry for entry in info.noisy_accuracy if entry.level_name == LevelName.SEVERITY]
    if info.clean_accuracy is None or not entries:
        what = "has no labels" if info.clean_accuracy is None else "has no accuracy under noise whose level is a severity"
        raise RunError(where, what, "audit labelled images with mc under noise of the kind corruption or corrupted_set")
    names = list(dict.fromkeys(entry.estimator for entry in entries))
    chosen = names[0] if estimator is None else estimator
    if chosen not in names:
        raise RunError(where, f"has no votes of {chosen!r}", did_you_mean(chosen, names))
    cells: dict[str, dict[float, AccuracyCell]] = {}
    for entry in entries:
        if entry.estimator == chosen:
            cells.setdefault(entry.noise, {})[entry.level] = AccuracyCell(entry.value, entry.lower, entry.upper)
    return CorruptionReport(chosen, info.clean_accuracy.value, cells, _image_errors(run, chosen, cells))


def _image_errors(run: Run, estimator: str, cells: Mapping[str, Mapping[float, AccuracyCell]]) -> dict[str, Floats]:
    """The errors of the labelled images that have votes at all five severities of every noise that has them."""
    complete = [label for label, by_level in cells.items() if set(by_level) == set(_LEVELS)]
    voted = {
        (key.noise, key.at.level): result.take(result.label_draws > 0) for key, result in run.frame.items() if key.estimator == estimator
    }
    columns = [voted[label, level] for label in complete for level in _LEVELS]
    names = common_names(columns) if columns else []
    if not names:
        return {}
    errors = np.array([result.of_images(names).label_errors for result in columns]).reshape(len(complete), len(_LEVELS), -1).mean(1)
    return dict(zip(complete, errors, strict=True))


def mean_error(errors: Errors) -> float:
    """The mean error over corruptions and severities, each counting the same: the number reported for CIFAR-10-C."""
    return fmean(fmean(values) for values in errors.values())
