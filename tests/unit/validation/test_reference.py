"""The noise of the reference differs from that of the run; runs are paired across models and noise
levels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robaudit.auditing.prepare import on_stream
from robaudit.engine.registry import reference_class
from robaudit.noise.installed import build
from robaudit.spec.model import NoiseSpec
from robaudit.validation.against_reference import STREAM
from tests.levels import gaussian_process
from tests.unit.engine.tools import curved, work_on

CPU = torch.device("cpu")


def draws(seed: int, stream: str, *, orthogonal: bool = False, count: int = 96) -> torch.Tensor:
    noise = gaussian_process(seed, CPU, stream=stream)
    make = noise.orthogonal_blocks if orthogonal else noise.blocks
    return torch.cat(list(make("a", count, (1, 8, 8))))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**31))
def test_no_seed_of_a_run_gives_the_references_noise(seed: int) -> None:
    """Not the seed itself, nor its neighbours, nor the draws in frames."""
    reference = [draws(seed, STREAM), draws(seed, STREAM, orthogonal=True)]
    for other in (seed, seed + 1, max(0, seed - 1)):
        for run in (draws(other, ""), draws(other, "", orthogonal=True)):
            # Of thousands of float32 numbers a pair may coincide, but no whole draw.
            same = [(run == other_run).flatten(1).all(1) for other_run in reference]
            assert not torch.cat(same).any()


def test_an_engine_on_a_stream_leaves_the_runs_engine_alone() -> None:
    work = work_on(curved(), seed=4)
    votes = reference_class().model_validate({"draws": 200})
    before = votes.estimate(work)
    other = on_stream(work.engine, build([NoiseSpec(sigma=(0.3,))], Path()), 4, STREAM)
    assert other.noises["gaussian"] is not work.engine.noises["gaussian"]
    assert votes.estimate(replace(work, engine=other)) != before
    assert votes.estimate(work) == before
