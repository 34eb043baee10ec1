"""The one place where the study measures a series of shots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy import stats

from tests.cameras import Floats


@dataclass(frozen=True, slots=True)
class Measured:
    """What a measurement says.

    Attributes:
        intervals: 95 % intervals by the names of :func:`~tests.research.camera.cases.truths`.
        verdict: the noise that fits, `none`, or nothing where no verdict is given.
        noises: noises of a spec by name: the fit, the frames.
    """

    intervals: Mapping[str, tuple[float, float]]
    verdict: str = ""
    noises: Mapping[str, Mapping[str, Any]] | None = None


Measure = Callable[[Path], Measured]


def measure(path: Path) -> Measured:
    """The differences of pairs of shots, as EMVA 1288 takes them.

    sigma^2 = mean((a - b)^2) / 2 - (mean a - mean b)^2 / 2 for each pair, and the mean of all
    pairs; the interval is that of independent normal pixels, so it is too narrow where neighbours
    are correlated.

    Source: EMVA Standard 1288, release 4 linear, equation 18.
    """
    shots = _shots(path)
    pairs = len(shots) // 2
    difference = shots[0 : 2 * pairs : 2] - shots[1 : 2 * pairs : 2]
    variance = np.var(difference, axis=(1, 2)).mean(axis=0) / 2
    freedom = pairs * (difference[0, ..., 0].size - 1)
    high, low = stats.chi2.ppf([0.975, 0.025], freedom)
    intervals = {
        f"sigma[{channel}]": (
            float(np.sqrt(value * freedom / high)),
            float(np.sqrt(value * freedom / low)),
        )
        for channel, value in enumerate(variance)
    }
    together = float(np.sqrt(variance.mean()))
    return Measured(intervals, noises={"pairs": {"kind": "gaussian", "sigma": together}})


def _shots(path: Path) -> Floats:
    """All shots of a folder (shots, height, width, channels), in [0, 1]."""
    files = sorted(path.iterdir())
    if files[0].suffix == ".npy":
        values = np.load(files[0])
    else:
        values = np.stack([np.asarray(Image.open(file)) for file in files])
    scaled = values / np.iinfo(values.dtype).max
    shots: Floats = scaled if scaled.ndim == 4 else scaled[..., None]
    return shots
