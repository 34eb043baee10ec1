"""Difficulties of the clean images of a run, and the order from easy to hard."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robaudit.numerics.image_intervals import Floats, Mask
from robaudit.quantities import DIFFICULTY
from robaudit.runs.run import Run
from robaudit.runs.table import Columns


class Difficulties:
    """The difficulty g of a run's images, from its results.

    Results with radii have g of the predicted class, and so has `difficulty`, as its value. For a
    misclassified image, g of the label is known only from `difficulty` with target: label.

    Args:
        run: a finished run; its spec says which results are relative to the label.
    """

    def __init__(self, run: Run) -> None:
        entries = run.info.spec.get("estimators", ())
        relative = [
            entry
            for entry in entries
            if entry["name"] == DIFFICULTY.name
            and entry.get("options", {}).get("target") == "label"
        ]
        of_label = {str(entry.get("label") or entry["name"]) for entry in relative}
        images = len(run.table.ids)
        self._g, self._margin, self._of_label = (np.full(images, np.nan) for _ in range(3))
        known = np.zeros(images, dtype=np.bool_)
        for columns in run.table.values():
            own, g, margin = _own(columns)
            if columns.key.quantity == DIFFICULTY.name and columns.key.estimator in of_label:
                self._of_label[columns.place] = columns.values
                own = columns.correct
            new = own & ~known[columns.place]
            at = columns.place[new]
            self._g[at] = g[new]
            self._margin[at] = margin[new]
            known[at] = True

    def of(self, columns: Columns) -> tuple[Floats, Floats]:
        """g and the margin of the predicted class (n,), NaN where unknown: the row's own, else of
        another result of the image."""
        own, g, margin = _own(columns)
        return np.where(own, g, self._g[columns.place]), np.where(
            own, margin, self._margin[columns.place]
        )

    def ease(self, columns: Columns) -> Floats:
        """g of the label (n,), larger for a lower loss; -infinity for a misclassified image where
        it is unknown, which puts the image last."""
        by_label = self._of_label[columns.place]
        g = np.where(columns.correct, self.of(columns)[0], -np.inf)
        return np.where(np.isnan(by_label), np.where(np.isnan(g), -np.inf, g), by_label)

    def knows(self, columns: Columns) -> Mask:
        """Whether the loss of an image is known (n,)."""
        known: Mask = ~np.isnan(self._of_label[columns.place]) | (
            columns.correct & ~np.isnan(self.of(columns)[0])
        )
        return known


def _own(columns: Columns) -> tuple[Mask, Floats, Floats]:
    """Whether rows have a difficulty, the difficulty, and the margin (n,)."""
    if columns.key.quantity == DIFFICULTY.name:
        return np.ones(len(columns), dtype=np.bool_), columns.values, columns.margin
    g = columns.difficulty
    return ~np.isnan(g), g, columns.margin


def easiest_first(ease: Floats) -> Sequence[int]:
    """The places of the images by descending ease; ties keep their order."""
    return [int(i) for i in (-ease).argsort(kind="stable")]
