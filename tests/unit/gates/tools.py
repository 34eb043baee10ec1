"""Runs made by hand: rows of known values and intervals, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from robaudit.numerics.intervals import clopper_pearson
from robaudit.quantities import CONFIDENCE, LOG10_P_FAIL, P_ROBUST, Interval
from robaudit.results import Votes
from robaudit.runs.rows import Row
from robaudit.runs.run import Run
from robaudit.spec.gate_grammar import QUANTITIES, Gate, parse_gate
from tests.infos import run_info
from tests.rows import ROW

ONLY = "; for these images only (--population: for images like these)"
"""The end of the line on all gates."""


def row(
    index: int, value: float, lower: float | None = None, upper: float | None = None, **others: Any
) -> Row:
    """One result; what is not given is that of an image of class 0, predicted right."""
    stated = Interval.parse("none" if lower is None and upper is None else "by hand")
    plain = replace(ROW, std_error=None, flips_to=None, forwards=101, interval=stated)
    return replace(
        plain, **{"sample_id": str(index), "value": value, "lower": lower, "upper": upper, **others}
    )


def votes(
    kept: Sequence[int], draws: int, labels: Sequence[int | None] | None = None, **others: Any
) -> list[Row]:
    """Rows of mc with two classes: so many of the votes are for the predicted class, which is class
    0 or the label."""
    found = []
    lower, upper = clopper_pearson(list(kept), draws)
    for i, k in enumerate(kept):
        label = 0 if labels is None else labels[i]
        predicted = label or 0
        counted = [0] * (predicted + 2)
        counted[predicted], counted[-1] = k, draws - k
        about: dict[str, Any] = {
            "label": label,
            "predicted": predicted,
            "correct": None if label is None else True,
            "votes": Votes(tuple(counted)),
        }
        about |= {"interval": Interval.parse("clopper-pearson"), "forwards": draws + 1, **others}
        found.append(row(i, k / draws, float(lower[i]), float(upper[i]), **about))
    return found


def run_of(rows: Sequence[Row], *, names: Sequence[str] | None = None) -> Run:
    """The rows as a finished run."""
    labelled = sum(one.label is not None for one in rows)
    data = {"labelled": labelled, "class_names": names if names is None else list(names)}
    info = run_info(
        data=data, quantities=[q.document() for q in (P_ROBUST, CONFIDENCE, LOG10_P_FAIL)]
    )
    return Run(Path("run"), info, tuple(rows))


def gate(text: str) -> Gate:
    """The gate of a text."""
    return parse_gate(text, QUANTITIES, "--gate")
