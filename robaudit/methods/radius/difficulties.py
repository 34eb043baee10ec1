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

    Results with radii have g of the predicted class, and so has `difficulty`, as its value. The g
    of the label of a misclassified image is known only from `difficulty` with target: label.

    Args:
        run: a finished run; its spec says which results are relative to the label.
    """

    def __init__(self, run: Run) -> None:
        of_label = _names_by_label(run)
        images = len(run.table.ids)
        self._g = np.full(images, np.nan)
        self._margin = np.full(images, np.nan)
        self._of_label = np.full(images, np.nan)
        known = np.zeros(images, dtype=np.bool_)
        for columns in run.table.values():
            own, g, margin = _own(columns)
            if columns.key.quantity == DIFFICULTY.name and columns.key.estimator in of_label:
                self._of_label[columns.place] = columns.values
                # Of a correct image the label is the predicted class.
                own = columns.correct
            # g is of the clean image, so it is the same in all results: the first one is taken.
            new = own & ~known[columns.place]
            at = columns.place[new]
            self._g[at] = g[new]
            self._margin[at] = margin[new]
            known[at] = True

    def of_prediction(self, columns: Columns) -> tuple[Floats, Floats]:
        """g and the margin of the predicted class (n,), NaN where unknown.

        They are the row's own, else those of another result of the image.
        """
        own, g, margin = _own(columns)
        known_g = np.where(own, g, self._g[columns.place])
        known_margin = np.where(own, margin, self._margin[columns.place])
        return known_g, known_margin

    def ease(self, columns: Columns) -> Floats:
        """g of the label (n,), larger for a lower loss.

        It is -infinity for a misclassified image where it is unknown, which puts the image last.
        """
        by_label = self._of_label[columns.place]
        predicted, _ = self.of_prediction(columns)
        g = np.where(columns.correct, predicted, -np.inf)
        by_prediction = np.where(np.isnan(g), -np.inf, g)
        return np.where(np.isnan(by_label), by_prediction, by_label)

    def knows(self, columns: Columns) -> Mask:
        """Whether the loss of an image is known (n,)."""
        predicted, _ = self.of_prediction(columns)
        by_prediction = columns.correct & ~np.isnan(predicted)
        known: Mask = ~np.isnan(self._of_label[columns.place]) | by_prediction
        return known


def _names_by_label(run: Run) -> set[str]:
    """The names of the results of `difficulty` with target: label."""
    names = set()
    for entry in run.info.spec.get("estimators", ()):
        target = entry.get("options", {}).get("target")
        if entry["name"] == DIFFICULTY.name and target == "label":
            names.add(str(entry.get("label") or entry["name"]))
    return names


def _own(columns: Columns) -> tuple[Mask, Floats, Floats]:
    """Whether rows have a difficulty, the difficulty, and the margin (n,)."""
    if columns.key.quantity == DIFFICULTY.name:
        return np.ones(len(columns), dtype=np.bool_), columns.values, columns.margin
    # Radii record the difficulty of their clean image; other results have none.
    g = columns.difficulty
    return ~np.isnan(g), g, columns.margin


def easiest_first(ease: Floats) -> Sequence[int]:
    """The places of the images by descending ease; ties keep their order."""
    return [int(i) for i in (-ease).argsort(kind="stable")]
