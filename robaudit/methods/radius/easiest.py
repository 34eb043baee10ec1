"""Errors under noise on the easiest images only, by the number of images kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robaudit.errors import NothingLeftError, RunError
from robaudit.estimates import Bounds
from robaudit.levels import LevelChoice, LevelName, NoiseLevel, from_weak_to_strong
from robaudit.methods.radius.difficulties import Difficulties, easiest_first
from robaudit.numerics.image_intervals import Floats
from robaudit.runs.run import Run
from robaudit.runs.table import common_places
from robaudit.settings import EXTEND
from robaudit.stats.bootstrap import percentiles

_SHARES = tuple(i / 20 for i in range(1, 21))


@dataclass(frozen=True, slots=True)
class EasiestErrors:
    """Errors of the noisy copies of labelled images, sorted from the lowest loss of the clean image
    to the highest.

    Attributes:
        estimator: the source of the votes.
        levels: noise levels, in the run's order of noises, each from weak to strong.
        errors: 1 - votes for the label / draws (images, levels), the easiest image first.
        clean: share of the images that are misclassified without noise.
        last: number of misclassified images without a known loss, which come last.
        others: results by votes that are not shown: other estimators or noises.
    """

    estimator: str
    levels: tuple[NoiseLevel, ...]
    errors: Floats
    clean: float
    last: int
    others: int

    @property
    def images(self) -> int:
        """Number of images."""
        return len(self.errors)

    def kept(self) -> Floats:
        """The mean error of the k easiest images (images, levels), k = 1 in the first line."""
        counts = np.arange(1, self.images + 1)[:, None]
        means: Floats = self.errors.cumsum(0) / counts
        return means


@dataclass(frozen=True, slots=True)
class KeptCurve:
    """The mean error over noises and severities by the share of the easiest images kept.

    Attributes:
        errors: of the images by level.
        labels: of the noises.
        shares: kept (images,), ascending.
        mean: over the noises (images,); by_noise: of each (noises, images).
        band: shares with their interval for the population, by bootstrap, pointwise.
    """

    errors: EasiestErrors
    labels: tuple[str, ...]
    shares: Floats
    mean: Floats
    by_noise: Floats
    band: tuple[tuple[float, Bounds], ...]


def easiest_errors(
    run: Run, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()
) -> EasiestErrors:
    """The errors under one noise, by its levels: from the first estimator that counts votes, under
    its first noise.

    Raises:
        RunError: the run has no such results, no votes for labels, or no difficulties.
        NothingLeftError: no image has a result at every level.
    """
    return _errors(run, estimators, levels, one_noise=True)


def kept_curve(
    run: Run, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()
) -> KeptCurve:
    """Mean corruption error, without normalisation, of the easiest images: the mean over the noises
    whose level is a severity, each the mean over its severities.

    Raises:
        RunError: as :func:`easiest_errors`; or no noise has severities.
    """
    errors = _errors(run, estimators, levels, one_noise=False)
    labels = tuple(dict.fromkeys(str(at.noise) for at in errors.levels))
    of_noise = [np.array([at.noise == label for at in errors.levels]) for label in labels]
    each = np.stack([errors.errors[:, chosen].mean(1) for chosen in of_noise])  # (noises, images)
    counts = np.arange(1, errors.images + 1)
    overall = each.mean(0)

    def easiest_mean(drawn: Floats) -> dict[float, Floats]:
        before = drawn.cumsum(1) - drawn
        means = {}
        for share in _SHARES:
            room = share * errors.images
            means[share] = np.clip(room - before, 0.0, drawn) @ overall / room
        return means

    band = percentiles(errors.images, easiest_mean)
    known = tuple((share, ends) for share, ends in band.items() if ends is not None)
    return KeptCurve(
        errors,
        labels,
        counts / errors.images,
        overall.cumsum() / counts,
        each.cumsum(1) / counts,
        known,
    )


def _errors(
    run: Run, estimators: Sequence[str], levels: LevelChoice | Sequence[float], *, one_noise: bool
) -> EasiestErrors:
    where = str(run.path)
    table = run.table
    groups = {
        key: result.take((result.label >= 0) & (result.draws > 0)) for key, result in table.items()
    }
    wanted = [key for key in run.groups(estimators, levels) if len(groups[key])]
    wanted = wanted if one_noise else [key for key in wanted if key.at.name is LevelName.SEVERITY]
    if not wanted:
        if not one_noise:
            raise RunError(
                where,
                "has no votes under noise whose level is a severity",
                "audit labelled images with mc under corruption",
            )
        raise RunError(
            where,
            "has no votes for labels",
            "audit labelled images with mc, for example under uniform, support: sphere",
        )
    first = wanted[0]
    ascending = from_weak_to_strong(key.at for key in wanted)
    shown = [
        key
        for key in wanted
        if key.estimator == first.estimator and (not one_noise or key.noise == first.noise)
    ]
    shown.sort(key=lambda key: ascending.index(key.at))
    both = common_places(groups[key] for key in shown)
    if not len(both):
        raise NothingLeftError(
            where, "no labelled image has votes at every level", "read the notes in samples.csv"
        )
    columns = [groups[key].take(np.isin(groups[key].place, both)) for key in shown]
    rows = columns[0]
    difficulties = Difficulties(run)
    known = difficulties.knows(rows)
    if not known.any():
        raise RunError(
            where,
            "has no difficulties to sort the images by",
            "add difficulty: {target: label}: " + EXTEND + " computes it",
        )
    order = easiest_first(difficulties.ease(rows))
    errors = np.stack([result.label_errors for result in columns], -1)[order]
    last = int((~rows.correct & ~known).sum())
    return EasiestErrors(
        first.estimator,
        tuple(key.at for key in shown),
        errors,
        float((~rows.correct).mean()),
        last,
        len(wanted) - len(shown),
    )
