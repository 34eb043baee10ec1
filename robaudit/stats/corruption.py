"""Errors under corruptions in one number: mean error, and mean corruption error relative to a baseline network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
