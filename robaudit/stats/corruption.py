"""Errors under corruptions in one number: mean error, and mean corruption error relative to a baseline network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from robaudit.documents import Document, json_values
from robaudit.errors import RunError, did_you_mean
from robaudit.levels import LevelName
from robaudit.stats.bootstrap import percentiles
from robaudit.stats.frame import common_names
from robaudit.stats.intervals import Bounds, Floats
from robaudit.stats.run import Run
from robaudit.text import Names

SEVERITIES = 5
_LEVELS = tuple(map(float, range(1, SEVERITIES + 1)))
_ALL = "all corruptions"

Errors = Mapping[str, Sequence[float]]
"""By corruption, the share of images classified wrongly at severity 1 to 5."""


@dataclass(frozen=True, slots=True, eq=False)
class ImageErrors:
    """Errors image by image.

    Attributes:
        names: ids of the images.
        clean: whether the clean image is misclassified, 0 or 1 (n,).
        mean: by corruption, the share of an image's noisy copies that are misclassified, a mean over the five severities (n,).
    """

    names: tuple[str, ...]
    clean: Floats
    mean: Mapping[str, Floats]

    def of(self, names: Sequence[str]) -> ImageErrors | None:
        """The errors of these images, in this order; None if one is missing."""
        places = {name: i for i, name in enumerate(self.names)}
        if not places.keys() >= set(names):
            return None
        at = [places[name] for name in names]
        return ImageErrors(tuple(names), self.clean[at], {label: errors[at] for label, errors in self.mean.items()})


@dataclass(frozen=True, slots=True)
class Baseline:
    """The errors of the baseline network.

    Attributes:
        clean: its error without corruptions.
        mean: by corruption, its mean error over the five severities.
        images: the errors image by image; None where unknown: then its errors count as exact.
    """

    clean: float
    mean: Mapping[str, float]
    images: ImageErrors | None = None


@dataclass(frozen=True, slots=True)
class CorruptionError:
    """Errors relative to a baseline.

    Attributes:
        value: the mean over the corruptions; 1 is as good as the baseline, and the literature prints 100 for it.
        by_corruption: the value of each corruption.
        missing: corruptions of the baseline that were not measured: with any, ``value`` is not the benchmark's number.
        interval: 95 % bootstrap interval of ``value`` for the population; None where errors of single images are not known.
        intervals: of each corruption, pointwise.
    """

    value: float
    by_corruption: Mapping[str, float]
    missing: tuple[str, ...]
    interval: Bounds | None = None
    intervals: Mapping[str, Bounds] = field(default_factory=dict)


ALEXNET = Baseline(
    0.435,
    {
        "gaussian_noise": 0.886428,
        "shot_noise": 0.894468,
        "impulse_noise": 0.922640,
        "defocus_blur": 0.819880,
        "glass_blur": 0.826268,
        "motion_blur": 0.785948,
        "zoom_blur": 0.798360,
        "snow": 0.866816,
        "frost": 0.826572,
        "fog": 0.819324,
        "brightness": 0.564592,
        "contrast": 0.853204,
        "elastic_transform": 0.646056,
        "pixelate": 0.717840,
        "jpeg_compression": 0.606500,
    },
)
"""AlexNet on ImageNet and on the 15 corruptions of ImageNet-C, as published with the benchmark (clean error: table 1 of the paper)."""


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
class CorruptionReport(Document):
    """Accuracy by noise and level, of one estimator that counts votes.

    Attributes:
        estimator: its name.
        clean: accuracy without noise.
        cells: by noise label and level, in the run's order.
        images: errors image by image, of the noises measured at all five severities.
        against: the baseline's name, and mCE and relative mCE relative to it; None without a baseline.
    """

    estimator: str
    clean: float
    cells: Mapping[str, Mapping[float, AccuracyCell]]
    images: ImageErrors
    against: tuple[str, CorruptionError, CorruptionError] | None = None

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
        if not self.images.mean:
            return {}
        errors, images = {**self.images.mean, _ALL: np.mean(list(self.images.mean.values()), axis=0)}, len(self.images.names)
        return percentiles(images, lambda drawn: {label: drawn @ each / images for label, each in errors.items()})

    def document(self, names: Names | None = None) -> dict[str, Any]:
        """As JSON values."""
        return {
            "estimator": self.estimator,
            "clean_accuracy": self.clean,
            "accuracy": json_values(self.cells),
            "mean_error": mean_error(self.errors) if self.errors else None,
            "mean_error_interval": self.mean_error_interval,
            "baseline": self.against and self.against[0],
            "mce": self.against and json_values(self.against[1]),
            "relative_mce": self.against and json_values(self.against[2]),
        }


def corruption_report(run: Run, estimator: str | None = None, against: tuple[str, Baseline] | None = None) -> CorruptionReport:
    """Accuracy by noise and severity.

    Args:
        run: a finished run.
        estimator: an estimator that counts votes; None: the first.
        against: name and errors of the baseline, if any.

    Raises:
        RunError: it has no labels, no such estimator, or no noise whose level is a severity; or nothing in common with the baseline.
    """
    info, where = run.info, str(run.path)
    entries = [entry for entry in info["noisy_accuracy"] if entry["level_name"] == LevelName.SEVERITY]
    if info["clean_accuracy"] is None or not entries:
        what = "has no labels" if info["clean_accuracy"] is None else "has no accuracy under noise whose level is a severity"
        raise RunError(where, what, "audit labelled images with mc under noise of the kind corruption or corrupted_set")
    names = list(dict.fromkeys(entry["estimator"] for entry in entries))
    chosen = names[0] if estimator is None else estimator
    if chosen not in names:
        raise RunError(where, f"has no votes of {chosen!r}", did_you_mean(chosen, names))
    cells: dict[str, dict[float, AccuracyCell]] = {}
    for entry in entries:
        if entry["estimator"] == chosen:
            cells.setdefault(entry["noise"], {})[entry["level"]] = AccuracyCell(entry["value"], entry["lower"], entry["upper"])
    report = CorruptionReport(chosen, info["clean_accuracy"]["value"], cells, _image_errors(run, chosen, cells))
    return report if against is None else replace(report, against=_against(report, *against, where))


def _image_errors(run: Run, estimator: str, cells: Mapping[str, Mapping[float, AccuracyCell]]) -> ImageErrors:
    """The errors of the labelled images that have votes at all five severities of every noise that has them."""
    complete = [label for label, by_level in cells.items() if set(by_level) == set(_LEVELS)]
    voted = {
        (key.noise, key.at.level): result.take(result.label_draws > 0) for key, result in run.frame.items() if key.estimator == estimator
    }
    columns = [voted[label, level] for label in complete for level in _LEVELS]
    names = common_names(columns) if columns else []
    if not names:
        return ImageErrors((), np.empty(0), {})
    errors = np.array([result.of_images(names).label_errors for result in columns]).reshape(len(complete), SEVERITIES, -1).mean(1)
    clean = (~columns[0].of_images(names).correct).astype(np.float64)
    return ImageErrors(tuple(names), clean, dict(zip(complete, errors, strict=True)))


def _against(report: CorruptionReport, name: str, baseline: Baseline, where: str) -> tuple[str, CorruptionError, CorruptionError]:
    errors = {label: values for label, values in report.errors.items() if label in baseline.mean}
    if not errors:
        known = (
            f"{name} has: {', '.join(baseline.mean)}" if baseline.mean else f"{name} has no corruption at all severities; name another run"
        )
        raise RunError(where, f"has no corruption at all severities from 1 to 5 for which {name} has errors", known)
    try:
        results = mce(errors, baseline), relative_mce(errors, 1 - report.clean, baseline)
    except ValueError as error:
        raise RunError(where, str(error), "choose another baseline") from error
    absolute, relative = (_bounded(result, report.images, baseline, relative=i == 1) for i, result in enumerate(results))
    return name, absolute, relative


def _bounded(error: CorruptionError, images: ImageErrors, baseline: Baseline, *, relative: bool) -> CorruptionError:
    """The error with its intervals: replicates draw the same images of both networks, where the baseline has them."""
    n, labels = len(images.names), list(error.by_corruption)
    if not n:
        return error
    base_images = None if baseline.images is None else baseline.images.of(images.names)

    def ratios(drawn: Floats) -> dict[str, Floats]:
        clean, base_clean = drawn @ images.clean / n, baseline.clean if base_images is None else drawn @ base_images.clean / n
        quotients = {}
        for label in labels:
            own, base = drawn @ images.mean[label] / n, baseline.mean[label] if base_images is None else drawn @ base_images.mean[label] / n
            up, down = (own - clean, base - base_clean) if relative else (own, base)
            quotients[label] = np.divide(up, down, out=np.full(len(drawn), np.nan), where=np.broadcast_to(down, len(drawn)) > 0)
        return {**quotients, _ALL: np.mean(list(quotients.values()), axis=0)}

    ends = percentiles(n, ratios)
    return replace(error, interval=ends[_ALL], intervals={label: interval for label in labels if (interval := ends[label]) is not None})


def baseline_of(report: CorruptionReport) -> Baseline:
    """A network's report as the baseline for others."""
    return Baseline(1 - report.clean, {label: _mean(label, values) for label, values in report.errors.items()}, report.images)


def mean_error(errors: Errors) -> float:
    """The mean error over corruptions and severities, each counting the same: the number reported for CIFAR-10-C.

    Raises:
        ValueError: there are none, or not five severities of each.
    """
    means = [_mean(name, values) for name, values in errors.items()]
    if not means:
        raise ValueError("no corruption was measured")
    return math.fsum(means) / len(means)


def mce(errors: Errors, baseline: Baseline = ALEXNET) -> CorruptionError:
    """Mean corruption error: mean over c of CE_c = (sum_s E_{s,c}) / (sum_s E^base_{s,c}).

    Args:
        errors: of the network.
        baseline: the divisors.

    Raises:
        ValueError: the baseline has no such corruption or makes no errors there, or there are not five severities of each.

    Source: Hendrycks & Dietterich 2019, Benchmarking neural network robustness to common corruptions and perturbations, section 4.1.
    """
    return _relative(errors, baseline, 0.0, 0.0)


def relative_mce(errors: Errors, clean: float, baseline: Baseline = ALEXNET) -> CorruptionError:
    """Relative mCE: mean over c of (sum_s E_{s,c} - E_clean) / (sum_s E^base_{s,c} - E^base_clean), how much the errors grow.

    Args:
        errors: of the network.
        clean: its error without corruptions.
        baseline: its growth is the divisor.

    Raises:
        ValueError: as for :func:`mce`; or the baseline's errors do not grow.

    Source: as for :func:`mce`.
    """
    return _relative(errors, baseline, clean, baseline.clean)


def _relative(errors: Errors, baseline: Baseline, clean: float, baseline_clean: float) -> CorruptionError:
    ratios: dict[str, float] = {}
    for name, values in errors.items():
        if name not in baseline.mean:
            raise ValueError(f"the baseline has no errors for {name!r}")
        if not (grown := baseline.mean[name] - baseline_clean) > 0:
            raise ValueError(f"the baseline makes no errors (or no more than without corruptions) for {name!r}")
        ratios[name] = (_mean(name, values) - clean) / grown
    if not ratios:
        raise ValueError("no corruption was measured")
    missing = tuple(name for name in baseline.mean if name not in ratios)
    return CorruptionError(math.fsum(ratios.values()) / len(ratios), ratios, missing)


def _mean(name: str, values: Sequence[float]) -> float:
    if len(values) != SEVERITIES:
        raise ValueError(f"{name!r} has errors for {len(values)} severities, not {SEVERITIES}")
    return math.fsum(values) / SEVERITIES
