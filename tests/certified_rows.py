"""Runs of certified radii made by hand: rows of known values, without a model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from robaudit.levels import GAUSSIAN, LevelName, NoiseLevel
from robaudit.methods.certificates.certificate import CERTIFICATE
from robaudit.quantities import CERTIFIED
from robaudit.results import Certificate
from robaudit.runs.rows import Row
from robaudit.runs.run import Run
from tests.infos import changed
from tests.radius_rows import row, run_of

AT = NoiseLevel(GAUSSIAN, 0.25, LevelName.SIGMA)
NAME = "certified_radius:norm=l2"


def certificate(
    index: int,
    radius: float,
    of_class: int | None = 0,
    label: int | None = 0,
    predicted: int = 0,
    **others: Any,
) -> Row:
    """One certified radius at sigma .25, of an image of class 0 that is predicted right unless it
    is said otherwise."""
    stated = replace(others.pop("stated", Certificate()), label=of_class)
    about: dict[str, Any] = {
        "estimator": NAME,
        "quantity": CERTIFIED.name,
        "upper": None,
        "interval": CERTIFICATE,
        "certificate": stated,
    }
    correct = None if label is None else predicted == label
    return row(
        index,
        radius,
        **{"at": AT, **about, "label": label, "predicted": predicted, "correct": correct, **others},
    )


def stating(alpha: float, largest: float, decide: float | None = None) -> Certificate:
    """The certificate of an estimator that can be wrong, reaches only so far, and may stop once it
    knows an answer."""
    return Certificate(alpha=alpha, largest=largest, asked=decide)


MIXED = [
    certificate(0, 0.2),
    certificate(1, 0.5),
    certificate(2, 0.5, predicted=3),  # the smoothed network is right where the other is wrong
    certificate(3, 0.9),
    certificate(4, 0.7, of_class=1),
    certificate(5, 0.0, of_class=None),
    certificate(6, 0.4, of_class=2, label=2, predicted=2),
    certificate(7, 0.0, of_class=None, label=2, predicted=1),
]
"""Eight images: certified right .2, .4, .5, .5, .9, another class once, nothing twice; the network
itself is right on six of them."""


def pictured(images: int = 9, name: str = "made") -> Run:
    """Two results of one norm and one of another, some of them wrong or without a certificate."""
    rows = []
    for i in range(images):
        of = None if i == 1 else 1 if i == 2 else 0
        rows.append(certificate(i, 0.1 * i, of, stated=stating(0.001, 0.1 * images)))
        rows.append(certificate(i, 0.15 * i, of, at=NoiseLevel(GAUSSIAN, 0.5, LevelName.SIGMA)))
        rows.append(certificate(i, 0.01 * i, of, estimator="margin_radius:norm=linf"))
    return named(run_of(rows), name)


def named(run: Run, name: str) -> Run:
    """The run with another name."""
    return Run(run.path.with_name(name), changed(run.info, name=name), run.rows)
