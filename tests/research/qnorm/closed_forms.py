"""Errors, coverage and widths of `qnorm_path` on losses whose norms have a closed form."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from robaudit.engine.objective import Objective
from robaudit.methods.intermediate_q.qnorm_path import QNormPath
from robaudit.numerics.log_losses import log_norm
from tests.unit.engine.goldens import Golden, work_of
from tests.unit.engine.tools import values
from tests.unit.methods.intermediate_q.test_qnorm import (
    GOLDENS,
    HARD,
    ORDERS,
    UNBOUNDED,
    column,
    errors,
)

REPETITIONS = 200
DRAWS = 40000


def lines() -> Iterator[str]:
    """By case and order: how many intervals hold the truth or miss it, errors of log Z and median
    half widths."""
    for name, golden in {**GOLDENS, **UNBOUNDED, **HARD}.items():
        found = values(QNormPath(), work_of(golden, REPETITIONS))
        log_loss = _plain(golden)
        for part, q in enumerate(ORDERS):
            given = [one for one in column(found, part) if not math.isnan(one.value)]
            ends = [
                (one.lower, one.upper)
                for one in given
                if one.lower is not None and one.upper is not None
            ]
            if not ends:
                yield f"{name:15} q = {q:4g}  no values"
                continue
            truth = math.exp(golden.log_norm(q))
            error = errors(golden, given, q)
            high = sum(lower > truth for lower, _ in ends)
            low = sum(upper < truth for _, upper in ends)
            width = torch.tensor([math.log(upper / lower) / 2 for lower, upper in ends]).median()
            ess = float(log_norm(log_loss, q).ess)
            plain = 1.96 / q * math.sqrt(max(0.0, DRAWS / ess - 1) / given[0].forwards)
            held = f"{len(ends) - high - low} of {len(ends)}, {high} high, {low} low"
            what = (
                f"RMSE {error.square().mean().sqrt():.5f}  bias {error.mean():+.5f}  half "
                f"width {width:.5f}"
            )
            yield (
                f"{name:15} q = {q:4g}  {held:30}  {what}  plain {plain:.5f} (ESS {ess:.0f} of "
                f"{DRAWS})"
            )


def _plain(golden: Golden) -> torch.Tensor:
    """log l of plain copies (1, DRAWS)."""
    work = work_of(golden, 1, seed=1)
    z = torch.cat(list(work.normals("plain", 0, DRAWS)))
    return Objective(work, work.labels, latent=True).losses(
        torch.zeros(DRAWS, dtype=torch.int64), z
    )[None]
