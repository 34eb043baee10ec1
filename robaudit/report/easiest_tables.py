"""Errors under noise on the easiest images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from robaudit.errors import RunError
from robaudit.levels import LevelName
from robaudit.names import ResultName
from robaudit.quantities import DIFFICULTY
from robaudit.report import numbers
from robaudit.report.sections import Ask, Found, Section
from robaudit.report.tables import Column, Table, cells
from robaudit.stats.easiest import EasiestErrors, KeptCurve, easiest_errors, kept_curve
from robaudit.stats.intervals import LIKE_THESE
from robaudit.stats.scores import RADII
from robaudit.store.run import Run
from robaudit.text import count

_SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)


class Easiest(NamedTuple):
    """The errors by the share of the easiest images that are kept: of one noise, and over corruptions where the run has severities."""

    errors: EasiestErrors
    kept: KeptCurve | None


class EasiestSection(Section[Easiest]):
    """Errors under noise on the easiest images only, by how many of them are kept."""

    title = "Errors on the easiest images"
    words = "Images are sorted by how difficult they are without noise; a robust network makes no errors on the easiest ones."

    def applies(self, run: Run) -> bool:
        """Whether it has labels, votes, and difficulties of their own or among the details of radii."""
        labelled = run.info["clean_accuracy"] is not None and bool(run.info["noisy_accuracy"])
        return labelled and not {DIFFICULTY.name, *RADII}.isdisjoint(run.quantities)

    def records(self, run: Run, ask: Ask) -> list[Easiest]:
        """The errors of the first estimator that counts votes."""
        severe = any(entry["level_name"] == LevelName.SEVERITY for entry in run.info["noisy_accuracy"])
        kept = None
        if severe:
            try:
                kept = kept_curve(run, ask.estimators, ask.levels)
            except RunError:  # none among those asked for
                kept = None
        return [Easiest(easiest_errors(run, ask.estimators, ask.levels), kept)]

    def tables(self, found: Sequence[Found[Easiest]], ask: Ask) -> Iterator[Table]:
        """The mean errors of the easiest 10, 25, 50, 75 and 100 % of the images."""
        several = len(found) > 1
        heads = [f"easiest {share:.0%}" for share in _SHARES]
        name = [Column("run")] if several else []
        rows = [
            cells((*([one.name] if several else []), str(at), *values))
            for one in found
            for at, values in zip(one.record.errors.levels, _by_level(one.record.errors), strict=True)
        ]
        first = found[0].record.errors
        notes = [f"{one.record.errors.last} misclassified images of unknown loss come last." for one in found if one.record.errors.last]
        yield Table(
            f"Mean error of the noisy copies, {ResultName.parse(first.estimator).estimator}",
            (*name, Column("noise"), *(Column(head, number=True) for head in heads)),
            tuple(rows),
            lines=(count(first.images, "image"),),
            notes=tuple(notes),
        )
        bands = [(one.name, one.record.kept) for one in found if one.record.kept is not None]
        if bands:
            rows = [cells((*([run] if several else []), *_kept(curve))) for run, curve in bands]
            yield Table(
                f"Mean over corruptions and severities: {', '.join(bands[0][1].labels)}",
                (*name, *(Column(head, number=True) for head in heads)),
                tuple(rows),
                notes=(f"[ ] 95 % bootstrap interval, {LIKE_THESE}, each share alone.",),
            )

    def document(self, one: Found[Easiest], ask: Ask) -> dict[str, Any]:
        """The errors by level and by the share of images kept."""
        errors, kept = one.record
        by_share = {str(at): dict(zip(map(str, _SHARES), _means(errors, i), strict=True)) for i, at in enumerate(errors.levels)}
        band = None if kept is None else [{"share": share, "lower": low, "upper": high} for share, (low, high) in kept.band]
        return {"estimator": errors.estimator, "images": errors.images, "clean_error": errors.clean, "errors": by_share, "band": band}

    def lines(self, one: Found[Easiest], ask: Ask) -> Iterator[Mapping[str, Any]]:
        """A line for each level and share of images kept."""
        errors = one.record.errors
        for i, at in enumerate(errors.levels):
            for share, error in zip(_SHARES, _means(errors, i), strict=True):
                yield {"estimator": errors.estimator, **at.document(), "kept": share, "error": error}


def _means(errors: EasiestErrors, level: int) -> list[float]:
    kept = errors.kept()[:, level]
    return [float(kept[max(1, round(share * errors.images)) - 1]) for share in _SHARES]


def _by_level(errors: EasiestErrors) -> Iterator[list[str]]:
    for i in range(len(errors.levels)):
        yield [f"{mean:.1%}" for mean in _means(errors, i)]


def _kept(curve: KeptCurve) -> Iterator[str]:
    band = dict(curve.band)
    for share in _SHARES:
        value = float(curve.mean[max(1, round(share * len(curve.mean))) - 1])
        near = next((ends for at, ends in band.items() if np.isclose(at, share)), None)
        yield f"{value:.1%}" if near is None else numbers.with_percents(value, *near)
