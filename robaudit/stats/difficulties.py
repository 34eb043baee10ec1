"""Difficulties of the clean images of a run, and the order from easy to hard."""

from __future__ import annotations

import math
from collections.abc import Sequence

from robaudit.quantities import DIFFICULTY
from robaudit.rows import Row
from robaudit.stats.agreement import Results
from robaudit.stats.intervals import Floats

Difficulty = tuple[float, float]
"""g and the margin of the predicted class; NaN where unknown."""
UNKNOWN: Difficulty = (math.nan, math.nan)


class Difficulties:
    """What the rows of a run tell about the difficulty g of its images, gathered row by row.

    g of the predicted class is among the details of radii and is the value of `difficulty`. For a misclassified image, g of the label is
    known only from `difficulty` with target: label.

    Args:
        run: whose spec says which results are relative to the label.
    """

    def __init__(self, run: Results) -> None:
        entries = run.info["spec"].get("estimators", ())
        relative = [one for one in entries if one["name"] == DIFFICULTY.name and one.get("options", {}).get("target") == "label"]
        self._of_label = frozenset(str(one.get("label") or one["name"]) for one in relative)
        self._known: dict[str, Difficulty] = {}
        self._by_label: dict[str, float] = {}

    def add(self, row: Row) -> None:
        """Look at one more row."""
        if row.quantity == DIFFICULTY.name and row.estimator in self._of_label:
            self._by_label[row.sample_id] = row.value
            if row.correct:
                self._known.setdefault(row.sample_id, (row.value, (row.details or {}).get("margin", math.nan)))
        elif (found := _in_row(row)) is not None:
            self._known.setdefault(row.sample_id, found)

    def of(self, row: Row) -> Difficulty:
        """That of the predicted class: the row's own, else what another result of the image tells."""
        return _in_row(row) or self._known.get(row.sample_id, UNKNOWN)

    def ease(self, row: Row) -> float:
        """g of the label, the larger the lower the loss; of a misclassified image -infinity where it is unknown, which puts it last."""
        if row.sample_id in self._by_label:
            return self._by_label[row.sample_id]
        g = self.of(row)[0] if row.correct else -math.inf
        return -math.inf if math.isnan(g) else g

    def knows(self, row: Row) -> bool:
        """Whether the loss of the image is known."""
        return row.sample_id in self._by_label or (bool(row.correct) and not math.isnan(self.of(row)[0]))


def _in_row(row: Row) -> Difficulty | None:
    details = row.details or {}
    if row.quantity == DIFFICULTY.name:
        return row.value, details.get("margin", math.nan)
    return (details["difficulty"], details.get("margin", math.nan)) if "difficulty" in details else None


def easiest_first(ease: Floats) -> Sequence[int]:
    """The places of the images by descending ease; equal ones keep their order."""
    return [int(i) for i in (-ease).argsort(kind="stable")]
