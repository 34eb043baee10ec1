"""Runs made by hand, that can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from robaudit.compare.difference import compare
from robaudit.compare.gate_changes import QUANTITIES, decide
from robaudit.compare.result import Comparison
from robaudit.estimates import Estimate
from robaudit.gates.decide import Decision
from robaudit.runs.rows import Row, bits_as_text
from robaudit.runs.run import Run
from robaudit.spec.gate_grammar import parse_gate
from tests.infos import changed
from tests.unit.gates.tools import run_of, votes


def made(
    rows: Sequence[Row],
    seed: int = 0,
    model: str = "a",
    *,
    skipped: Sequence[str] = (),
    device: str = "cpu",
) -> Run:
    """A finished run of these rows; another model has another name."""
    names = dict.fromkeys(row.estimator for row in rows)
    estimators: list[dict[str, object]] = [
        {"name": name, "label": name, "options": {}} for name in names
    ]
    info = changed(
        run_of(rows).info,
        identity=model,
        seed=seed,
        device=device,
        model={"sha256": model, "format": "safetensors", "name": "m"},
        spec={
            "model": {},
            "noise": [{"kind": "gaussian", "name": "gaussian", "clip": False}],
            "estimators": estimators,
            "run": {},
        },
        skipped=[{"sample_id": one, "reason": "unreadable"} for one in skipped],
        totals={"skipped": len(skipped)},
    )
    return Run(Path("nowhere"), info, tuple(rows))


def shares(
    kept: Sequence[int] | NDArray[np.int64], draws: int, labels: Sequence[int | None] | None = None
) -> list[Row]:
    """Rows of mc with so many votes, and no bits."""
    return votes([int(k) for k in kept], draws, labels)


def bits(kept: NDArray[np.bool_], labels: Sequence[int | None] | None = None) -> list[Row]:
    """Rows of mc whose draws (images, draws) kept the class, bits included."""
    counts = kept.sum(1)
    draws = kept.shape[1]
    texts = bits_as_text(torch.tensor(kept))
    rows = zip(shares(counts, draws, labels), texts, counts, strict=True)
    return [with_bits(row, text if 0 < k < draws else None) for row, text, k in rows]


def with_bits(row: Row, bits: str | None = None) -> Row:
    """The row with these bits of its draws, or none."""
    return row if row.votes is None else replace(row, votes=replace(row.votes, bits=bits))


def decided(found: Comparison, *gates: str, population: bool = False) -> tuple[Decision, ...]:
    """The gates of some texts, decided."""
    return decide(
        found, [parse_gate(text, QUANTITIES, "--gate") for text in gates], population=population
    )


def between(base: Sequence[Row], new: Sequence[Row], seed: int = 1) -> Comparison:
    """Two models, with other noise by default."""
    return compare(made(base), made(new, seed, "b"))


def width(estimate: Estimate) -> float:
    """The width of an interval."""
    return estimate.below + estimate.above
