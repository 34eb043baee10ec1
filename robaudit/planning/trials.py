"""What does a setting of an estimator give and cost on a few images?"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robaudit.assembly import on_stream
from robaudit.auditing import Ready
from robaudit.datasets.select import Selected
from robaudit.estimators.base import Estimator
from robaudit.estimators.registry import Chosen, tasks_of
from robaudit.progress import Silent
from robaudit.validation.compute import compute

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Trial:
    """One estimator with one setting at one noise level.

    Attributes:
        values: of the images (images,).
        variances: squares of the standard errors it states; nan where it states none (images,).
        passes: forward passes of an image, the clean one not included, on average.
        seconds: of an image, with reading it and its clean pass.
        ids: of the images; those that are unusable have no values.
    """

    values: Floats
    variances: Floats
    passes: float
    seconds: float
    ids: tuple[str, ...] = ()


def trial(
    ready: Ready, samples: Selected, estimator: Estimator, sigma: float, stream: str, *, overhead: float = 0.0, skip_bad: bool = False
) -> Trial:
    """Run it, on noise of its own.

    Args:
        ready: the audit.
        samples: the images.
        estimator: with its setting.
        sigma: the noise level.
        stream: name of the noise; two trials with different ones are independent.
        overhead: seconds that any trial takes, however few its images: they are no image's.
        skip_bad: leave unusable samples out.
    """
    engine = on_stream(ready.engine, ready.spec.run.seed, f"pilot {stream}")
    tasks = tasks_of([sigma], [Chosen("trial", "trial", estimator)])
    started = time.perf_counter()
    found = compute(ready, engine, samples, tasks, Silent(), on_error="skip" if skip_bad else "stop")
    spent = time.perf_counter() - started
    rows = [row for name in _ids(samples) if (row := found.rows.get((name, sigma, "trial"))) is not None]
    return Trial(
        values=np.array([row.value for row in rows]),
        variances=np.array([np.nan if row.std_error is None else row.std_error**2 for row in rows]),
        passes=sum(row.forwards - 1 for row in rows) / max(1, len(rows)),
        seconds=max(0.2 * spent, spent - overhead) / max(1, len(rows)),
        ids=tuple(row.sample_id for row in rows),
    )


def _ids(samples: Selected) -> list[str]:
    return [samples.sample_id(i) for i in range(len(samples))]
