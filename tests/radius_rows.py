"""Runs of radii made by hand: rows of known values, without a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from robaudit.levels import NoiseLevel
from robaudit.quantities import CERTIFIED, DIFFICULTY, P_ROBUST, RADIUS, TOLERANCE, Interval
from robaudit.results import CleanImage
from robaudit.runs.rows import Row
from robaudit.runs.run import Run
from tests.infos import run_info
from tests.rows import ROW

BARE = NoiseLevel()


def row(index: int | str, value: float, at: NoiseLevel = BARE, **others: Any) -> Row:
    """One exact result; what is not given is that of an image of class 0, predicted right, without
    noise."""
    values: dict[str, Any] = {
        "sample_id": str(index),
        **at.document(),
        "estimator": "radius_exact:norm=l2",
        "quantity": RADIUS.name,
        "lower": value,
        "upper": value,
        "std_error": None,
        "flips_to": None,
        "forwards": 1,
        "interval": Interval.parse("exact"),
    }
    return replace(ROW, value=value, **{**values, **others})


def radius(
    index: int,
    value: float,
    g: float | None = None,
    margin: float | None = None,
    *,
    correct: bool = True,
    **others: Any,
) -> Row:
    """An exact radius with its difficulty, whose margin is g unless it is given."""
    clean = None if g is None else CleanImage(g if margin is None else margin, g)
    return row(
        index, value, **{"label": 0 if correct else 1, "correct": correct, "clean": clean, **others}
    )


def found(
    index: int, value: float, g: float | None = None, *, correct: bool = True, **others: Any
) -> Row:
    """A radius that a search found: an upper bound."""
    about: dict[str, Any] = {
        "lower": 0.0,
        "upper": value,
        "interval": Interval.parse("upper bound"),
        "estimator": "radius_attack:norm=l2",
    }
    return radius(index, value, g, correct=correct, **{**about, **others})


def beyond(
    index: int, cap: float, g: float | None = None, *, correct: bool = True, **others: Any
) -> Row:
    """A search that found nothing up to the cap."""
    about: dict[str, Any] = {
        "lower": 0.0,
        "upper": None,
        "interval": Interval.parse("censored"),
        "estimator": "radius_attack:norm=l2",
    }
    return radius(index, cap, g, correct=correct, **{**about, **others})


def run_of(rows: Iterable[Row], estimators: Sequence[dict[str, Any]] = ()) -> Run:
    """The rows as a finished run; ``estimators``: as the spec's document has them."""
    given = tuple(rows)
    info = run_info(
        name="made",
        data={"labelled": sum(one.label is not None for one in given)},
        quantities=[
            quantity.document() for quantity in (P_ROBUST, RADIUS, CERTIFIED, TOLERANCE, DIFFICULTY)
        ],
        spec={"estimators": list(estimators)},
    )
    return Run(Path("run"), info, given)
