"""Runs of curves made by hand: rows of known errors, without a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from robaudit.levels import LevelName, NoiseLevel
from robaudit.quantities import P_ROBUST, Interval
from robaudit.results import CleanImage, Searched, Votes
from robaudit.runs.rows import Row
from robaudit.runs.run import Run
from tests.infos import changed
from tests.levels import sigma
from tests.radius_rows import row, run_of

STEPS = {"l2": 0.32, "linf": 0.025}


def attacked(
    index: int,
    ball: int,
    *,
    norm: str = "l2",
    cap: int | None = None,
    correct: bool = True,
    labelled: bool = True,
) -> Row:
    """An image that an attack changes in this ball of the grid; with a cap, in none up to it."""
    step = STEPS[norm]
    value = round((ball if cap is None else cap) * step, 12)
    return row(
        index,
        value,
        label=(0 if correct else 1) if labelled else None,
        correct=correct if labelled else None,
        estimator=f"pgd_{norm}:norm={norm}",
        lower=0.0,
        upper=value if cap is None else None,
        interval=Interval.parse("upper bound" if cap is None else "censored"),
        search=Searched(step=step),
        clean=CleanImage(1.0, 1.0),
    )


def noisy(
    index: int,
    at: NoiseLevel,
    right: int,
    *,
    draws: int = 5,
    correct: bool = True,
    labelled: bool = True,
    classes: int = 10,
) -> Row:
    """An image with so many copies classified as labelled."""
    label, predicted = (0, 0) if correct else (1, 0)
    votes = [0] * classes
    votes[label] = right
    votes[-1] = draws - right
    return row(
        index,
        votes[predicted] / draws,
        at,
        label=label if labelled else None,
        correct=correct if labelled else None,
        estimator="mc",
        quantity=P_ROBUST.name,
        votes=Votes(tuple(votes)),
        interval=Interval.parse("clopper-pearson"),
    )


def fading(share: float) -> NoiseLevel:
    """A level of linear corruption."""
    return NoiseLevel("linear", share, LevelName.SHARE)


def noise_rows(
    errors: Sequence[Sequence[int]],
    *,
    wrong: Sequence[int] = (),
    classes: int = 10,
    step: float = 0.32,
) -> list[Row]:
    """Copies out of five that are classified wrongly: a list of images for each level."""
    return [
        noisy(
            i, sigma(round(step * (j + 1), 12)), 5 - lost, correct=i not in wrong, classes=classes
        )
        for j, of_level in enumerate(errors)
        for i, lost in enumerate(of_level)
    ]


def curves_run(
    rows: Iterable[Row], noises: Mapping[str, str] | None = None, path: str = "run"
) -> Run:
    """The rows as a finished run; ``noises``: kinds by label."""
    made = run_of(rows)
    kinds = {"gaussian": "gaussian", "linear": "linear"} if noises is None else noises
    spec: dict[str, Any] = {
        "estimators": [],
        "noise": [{"name": label, "kind": kind} for label, kind in kinds.items()],
    }
    return Run(Path(path), changed(made.info, spec=spec), made.rows)


def pictured(images: int = 8) -> Run:
    """All four curves, with survivors and a misclassified image."""
    rows: list[Row] = []
    for i in range(images):
        correct = i != 2
        for norm in ("l2", "linf"):
            rows.append(
                attacked(i, 1 + i, norm=norm, correct=correct)
                if i
                else attacked(i, 0, norm=norm, cap=8)
            )
        rows += [
            noisy(i, sigma(0.32 * k), max(0, 5 - k - i % 3), correct=correct) for k in range(1, 6)
        ]
        rows += [
            noisy(i, fading(k / 10), max(0, 5 - k // 2 - i % 3), correct=correct)
            for k in range(1, 11)
        ]
    return curves_run(rows)
