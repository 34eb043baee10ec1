"""The settings of the estimators that are compared at equal error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """An estimator with options, on the curve ``line``."""

    line: str
    label: str
    name: str
    options: dict[str, Any]


def settings(draws: int, linear: Sequence[int] = (5, 10)) -> list[Setting]:
    """What is tried: mc with at most so many draws, mmse with those of ``linear``."""
    found = [Setting("mc", f"mc {n:,}", "mc", {"samples": n}) for n in (64, 128, 256, 512, 1024, 2048, 4096) if n <= draws]
    line = "logit_gaussian, samples"
    found += [Setting(line, f"logit_gaussian {n}", "logit_gaussian", {"samples": n}) for n in (16, 32, 64, 128, 256, 512) if n <= draws]
    line = "logit_gaussian, tolerance"
    found += [Setting(line, f"{line} {t:g}", "logit_gaussian", {"tolerance": t}) for t in (0.04, 0.02, 0.015, 0.01)]
    for name in ("mmse", "mmse_mvs"):
        found += [_mmse(name, n) for n in linear if n < draws // 8 + 1]
    return found + [Setting(name, name, name, {}) for name in ("taylor", "taylor_mvs", "softmax")]


def _mmse(name: str, samples: int) -> Setting:
    pairs = samples % 2 == 0
    return Setting(name, f"{name} {samples}" + ("" if pairs else " (no pairs)"), name, {"samples": samples, "pairs": pairs})
