"""Errors under noise on the easiest images only, by the number of images."""

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

_SHARES = tuple(i / 20 for i in range(1, 21))  # of the images, where the curve has a band


@dataclass(frozen=True, slots=True)
class EasiestErrors:
    """Errors of the noisy copies of labelled images.

    The images are sorted from the lowest loss of the clean image to the highest.

    Attributes:
        estimator: the name of the result with the votes.
        levels: noise levels, in the run's order of noises, each from weak to strong.
        errors: 1 - votes for the label / draws (images, levels), the easiest image first.
        clean: share of the images that are misclassified without noise.
        last: number of misclassified images whose loss is not known; they come last.
        others: number of results with votes that are not shown: other estimators or noises.
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
class ErrorByShare:
    """The mean error over noises and severities by the share of the easiest images.

    Attributes:
        errors: of the images by level.
        labels: of the noises.
        shares: of the images that the mean is over (images,), ascending.
        mean: over the noises (images,).
        by_noise: mean of each noise (noises, images).
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
    """The errors under one noise, by its levels.

    They are those of the first estimator that counts votes, under its first noise.

    Raises:
        RunError: the run has no such results, no votes for labels, or no difficulties.
        NothingLeftError: no image has a result at every level.
    """
    return _errors(run, estimators, levels, one_noise=True)


def error_by_share(
    run: Run, estimators: Sequence[str] = (), levels: LevelChoice | Sequence[float] = ()
) -> ErrorByShare:
    """Mean corruption error, without normalisation, of the easiest images.

    It is the mean over the noises whose level is a severity, each the mean over its severities.

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
        # An image may be drawn several times in a replicate. Of those that fill the share it counts
        # as often as there is room after the easier ones.
        easier = drawn.cumsum(1) - drawn
        means = {}
        for share in _SHARES:
            room = share * errors.images
            means[share] = np.clip(room - easier, 0.0, drawn) @ overall / room
        return means

    band = percentiles(errors.images, easiest_mean)
    return ErrorByShare(
        errors=errors,
        labels=labels,
        shares=counts / errors.images,
        mean=overall.cumsum() / counts,
        by_noise=each.cumsum(1) / counts,
        band=tuple((share, ends) for share, ends in band.items() if ends is not None),
    )


def _errors(
    run: Run, estimators: Sequence[str], levels: LevelChoice | Sequence[float], *, one_noise: bool
) -> EasiestErrors:
    """The errors of the easiest images.

    Args:
        run: a finished run.
        estimators, levels: only these results.
        one_noise: of the first noise; else of all noises whose level is a severity.
    """
    where = str(run.path)
    # Only rows with votes for a label have an error.
    groups = {
        key: result.take((result.label >= 0) & (result.draws > 0))
        for key, result in run.table.items()
    }
    wanted = [key for key in run.groups(estimators, levels) if len(groups[key])]
    if not one_noise:
        wanted = [key for key in wanted if key.at.name is LevelName.SEVERITY]
    if not wanted:
        raise _no_votes(where, one_noise)
    # Votes of several estimators, or levels of several noises, have no common mean.
    first = wanted[0]
    shown = [key for key in wanted if key.estimator == first.estimator]
    if one_noise:
        shown = [key for key in shown if key.noise == first.noise]
    ascending = from_weak_to_strong(key.at for key in wanted)
    shown.sort(key=lambda key: ascending.index(key.at))
    # A curve is over the same images at every level.
    common = common_places(groups[key] for key in shown)
    if not len(common):
        raise NothingLeftError(
            where, "no labelled image has votes at every level", "read the notes in samples.csv"
        )
    columns = [groups[key].take(np.isin(groups[key].place, common)) for key in shown]
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
    wrong = ~rows.correct
    return EasiestErrors(
        estimator=first.estimator,
        levels=tuple(key.at for key in shown),
        errors=np.stack([result.label_errors for result in columns], -1)[order],
        clean=float(wrong.mean()),
        last=int((wrong & ~known).sum()),
        others=len(wanted) - len(shown),
    )


def _no_votes(where: str, one_noise: bool) -> RunError:
    """The error for a run without the votes that a curve needs."""
    if one_noise:
        return RunError(
            where,
            "has no votes for labels",
            "audit labelled images with mc, for example under uniform, support: sphere",
        )
    return RunError(
        where,
        "has no votes under noise whose level is a severity",
        "audit labelled images with mc under corruption",
    )
