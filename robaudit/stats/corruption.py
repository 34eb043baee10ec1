"""Errors under corruptions in one number: mean error, and mean corruption error relative to a baseline network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from robaudit.errors import RunError, did_you_mean
from robaudit.levels import LevelName

SEVERITIES = 5

Errors = Mapping[str, Sequence[float]]
"""By corruption, the share of images classified wrongly at severity 1 to 5."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The errors of the network that others are measured against.

    Attributes:
        clean: its error without corruptions.
        mean: by corruption, its mean error over the five severities.
    """

    clean: float
    mean: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class CorruptionError:
    """Errors relative to a baseline.

    Attributes:
        value: the mean over the corruptions; 1 is as good as the baseline, and the literature prints 100 for it.
        by_corruption: each by itself.
        missing: corruptions of the baseline that were not measured: with any, ``value`` is not the benchmark's number.
    """

    value: float
    by_corruption: Mapping[str, float]
    missing: tuple[str, ...]


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
class Cell:
    """Accuracy under one noise at one level.

    Attributes:
        value: share of the labelled images' noisy copies that are classified correctly, a mean over the images.
        lower, upper: 95 % interval, for the population.
    """

    value: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class CorruptionReport:
    """Accuracy by noise and level, of one estimator that counts votes.

    Attributes:
        estimator: its name.
        clean: accuracy without noise.
        cells: by noise label and level, in the run's order.
        against: the baseline's name and what the errors are relative to it, mCE and relative mCE; None without a baseline.
    """

    estimator: str
    clean: float
    cells: Mapping[str, Mapping[float, Cell]]
    against: tuple[str, CorruptionError, CorruptionError] | None = None

    @property
    def levels(self) -> list[float]:
        """Every level of any of the noises, ascending."""
        return sorted({level for by_level in self.cells.values() for level in by_level})

    @property
    def errors(self) -> dict[str, list[float]]:
        """Error by noise, for those measured at all five severities."""
        return {
            label: [1 - by_level[level].value for level in map(float, range(1, SEVERITIES + 1))]
            for label, by_level in self.cells.items()
            if set(by_level) == set(map(float, range(1, SEVERITIES + 1)))
        }

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "estimator": self.estimator,
            "clean_accuracy": self.clean,
            "accuracy": {label: {f"{level:g}": asdict(cell) for level, cell in some.items()} for label, some in self.cells.items()},
            "mean_error": mean_error(self.errors) if self.errors else None,
            "baseline": self.against and self.against[0],
            "mce": self.against and asdict(self.against[1]),
            "relative_mce": self.against and asdict(self.against[2]),
        }


def corruption_report(info: Mapping[str, Any], estimator: str | None, against: tuple[str, Baseline] | None, where: str) -> CorruptionReport:
    """Accuracy by noise and severity, from the run.json of a run.

    Args:
        info: run.json.
        estimator: one that counts votes; None: the first.
        against: name and errors of the baseline, if any.
        where: the run, for messages.

    Raises:
        RunError: it has no labels, no such estimator, or no noise whose level is a severity; or nothing that the baseline has, too.
    """
    entries = [entry for entry in info["noisy_accuracy"] if entry["level_name"] == LevelName.SEVERITY]
    if info["clean_accuracy"] is None or not entries:
        what = "has no labels" if info["clean_accuracy"] is None else "has no accuracy under noise whose level is a severity"
        raise RunError(where, what, "audit labelled images with mc under noise of the kind corruption or corrupted_set")
    names = list(dict.fromkeys(entry["estimator"] for entry in entries))
    chosen = names[0] if estimator is None else estimator
    if chosen not in names:
        raise RunError(where, f"has no votes of {chosen!r}", did_you_mean(chosen, names))
    cells: dict[str, dict[float, Cell]] = {}
    for entry in entries:
        if entry["estimator"] == chosen:
            cells.setdefault(entry["noise"], {})[entry["level"]] = Cell(entry["value"], entry["lower"], entry["upper"])
    report = CorruptionReport(chosen, info["clean_accuracy"]["value"], cells)
    return report if against is None else replace(report, against=_against(report, *against, where))


def _against(report: CorruptionReport, name: str, baseline: Baseline, where: str) -> tuple[str, CorruptionError, CorruptionError]:
    errors = {label: values for label, values in report.errors.items() if label in baseline.mean}
    if not errors:
        known = f"{name} has: {', '.join(baseline.mean)}" if baseline.mean else f"{name} has no corruption at all of them; name another run"
        raise RunError(where, f"has no corruption at all severities from 1 to 5 for which {name} has errors", known)
    try:
        return name, mce(errors, baseline), relative_mce(errors, 1 - report.clean, baseline)
    except ValueError as error:
        raise RunError(where, str(error), "choose another baseline") from error


def baseline_of(report: CorruptionReport) -> Baseline:
    """A network's report as the baseline for others."""
    return Baseline(1 - report.clean, {label: math.fsum(values) / SEVERITIES for label, values in report.errors.items()})


def mean_error(errors: Errors) -> float:
    """The mean error over corruptions and severities, each counting the same: the number reported for CIFAR-10-C.

    Raises:
        ValueError: there are none, or not five severities of each.
    """
    return math.fsum(_mean(name, values) for name, values in _checked(errors).items()) / len(errors)


def mce(errors: Errors, baseline: Baseline = ALEXNET) -> CorruptionError:
    """Mean corruption error: mean over c of CE_c = (sum_s E_{s,c}) / (sum_s E^base_{s,c}).

    Args:
        errors: those of the network.
        baseline: what they are divided by.

    Raises:
        ValueError: the baseline has no such corruption or makes no errors there, or there are not five severities of each.

    Source: Hendrycks & Dietterich 2019, Benchmarking neural network robustness to common corruptions and perturbations, section 4.1.
    """
    return _relative(errors, baseline, 0.0, 0.0)


def relative_mce(errors: Errors, clean: float, baseline: Baseline = ALEXNET) -> CorruptionError:
    """Relative mCE: mean over c of (sum_s E_{s,c} - E_clean) / (sum_s E^base_{s,c} - E^base_clean), how much the errors grow.

    Args:
        errors: those of the network.
        clean: its error without corruptions.
        baseline: what the growth is divided by.

    Raises:
        ValueError: as for :func:`mce`; or the baseline's errors do not grow.

    Source: as for :func:`mce`.
    """
    return _relative(errors, baseline, clean, baseline.clean)


def _relative(errors: Errors, baseline: Baseline, clean: float, baseline_clean: float) -> CorruptionError:
    found: dict[str, float] = {}
    for name, values in _checked(errors).items():
        if name not in baseline.mean:
            raise ValueError(f"the baseline has no errors for {name!r}")
        grown = baseline.mean[name] - baseline_clean
        if not grown > 0:
            raise ValueError(f"the baseline makes no errors (or no more than without corruptions) for {name!r}")
        found[name] = (_mean(name, values) - clean) / grown
    missing = tuple(name for name in baseline.mean if name not in found)
    return CorruptionError(math.fsum(found.values()) / len(found), found, missing)


def _checked(errors: Errors) -> Errors:
    if not errors:
        raise ValueError("no corruption was measured")
    return errors


def _mean(name: str, values: Sequence[float]) -> float:
    if len(values) != SEVERITIES:
        raise ValueError(f"{name!r} has errors for {len(values)} severities, not {SEVERITIES}")
    return math.fsum(values) / SEVERITIES
