"""`logit_gaussian`: exact where margins are normal, caught where they are not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from robaudit.methods.average_case.logit_gaussian import (
    LogitGaussian,
    MarginStatistics,
    by_votes,
    contradicted,
    fit_margins,
    vote_error,
)
from robaudit.methods.average_case.review import FitReview
from robaudit.results import NormalFit, Result, Votes
from tests.levels import sigma
from tests.unit.engine.tools import build, curved, known, linear, work_on


def values(estimates: object) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    assert isinstance(estimates, list)
    return np.array([e.value for e in estimates if isinstance(e, Result)])


def skewed(x: Tensor) -> Tensor:
    """Three classes whose margins are log-normal under Gaussian noise: skewness about 2 at sigma
    0.3."""
    u = torch.linspace(-1, 1, 24, dtype=x.dtype)
    v = torch.cos(torch.arange(24, dtype=x.dtype))
    flat = x.flatten(1) - 0.5
    return torch.stack(
        [flat.new_zeros(len(x)), 0.8 - torch.exp(flat @ u), -0.2 - torch.exp(0.8 * flat @ v)], dim=1
    )


def test_linear_models_err_by_the_covariance_alone() -> None:
    """Pairs make the mean exact; what is left falls as 1 / sqrt(draws)."""
    batch = work_on(linear(5), sigma=0.5, images=30)
    exact = values(build("taylor").estimate(batch))
    error = {
        n: np.sqrt(np.mean((values(LogitGaussian(draws=n).estimate(batch)) - exact) ** 2))
        for n in (64, 1024)
    }
    assert error[64] < 0.03
    assert error[1024] < 0.6 * error[64]


def test_close_to_converged_mc_on_a_curved_network() -> None:
    batch = work_on(curved(), sigma=0.3, images=12)
    truth = values(
        build("mc", draws=4096).estimate(work_on(curved(), sigma=0.3, images=12, seed=5))
    )
    rmse = np.sqrt(np.mean((values(LogitGaussian(draws=1024).estimate(batch)) - truth) ** 2))
    votes = np.sqrt(np.mean(truth * (1 - truth) / 1024))
    assert rmse < votes + 3 * math.sqrt(0.25 / 4096)


def test_skewed_margins_are_caught_and_decided_by_votes() -> None:
    batch = work_on(skewed, sigma=0.3, images=16)
    truth = values(build("mc", draws=8192).estimate(work_on(skewed, sigma=0.3, images=16, seed=5)))
    estimates = LogitGaussian(draws=1024).estimate(batch)
    doubtful = (truth > 0.02) & (truth < 0.98)
    assert doubtful.sum() >= 4
    flagged = np.array([e.note.startswith("margins are not normal") for e in estimates])
    assert flagged[doubtful].mean() > 0.9
    assert all(
        e.interval.text == "antithetic pairs" and e.votes is not None
        for e, f in zip(estimates, flagged, strict=True)
        if f
    )
    error = values(estimates)[doubtful] - truth[doubtful]
    # pairs may agree: at most twice the variance of votes
    assert np.sqrt(np.mean(error**2)) < 2 * math.sqrt(0.25 / 1024)


def tied(x: Tensor) -> Tensor:
    """Three classes with the same logits: the first of them always wins."""
    return 0 * x.flatten(1)[:, :3]


def rounded(x: Tensor) -> Tensor:
    """Logits that are rounded to whole numbers: the margin of the first class, which wins if it is
    0, is nearly normal."""
    u = x.flatten(1) @ torch.cos(1.3 * torch.arange(24, dtype=x.dtype))
    return torch.stack([(1.7 * u).round(), torch.zeros_like(u)], 1)


@pytest.mark.parametrize("network", [tied, rounded])
def test_logits_in_steps_are_decided_by_votes(network: Callable[[Tensor], Tensor]) -> None:
    """A margin of 0 keeps the class, but the fit counts it as half lost."""
    converged = values(
        build("mc", draws=4096).estimate(work_on(network, sigma=0.1, images=12, seed=5))
    )
    rows = LogitGaussian().estimate(work_on(network, sigma=0.1, images=12))
    doubtful = [
        (row, p) for row, p in zip(rows, converged, strict=True) if p < 0.9 or network is tied
    ]
    assert len(doubtful) >= 4
    for row, p in doubtful:
        assert known(row.lower) <= p <= known(row.upper)
        assert row.interval.text == "antithetic pairs"
        assert "by votes" in row.note


def test_fits_near_their_votes_stay() -> None:
    """The votes rule out the fit of an ordinary network for less than one image in a thousand."""
    assert not contradicted(0.5, Votes((48, 48), split=48), 0)
    assert not contradicted(0.99, Votes((96, 0), split=0), 0)
    assert contradicted(0.8, Votes((96, 0), split=0), 0)
    rows = LogitGaussian().estimate(work_on(linear(5), sigma=0.5, images=60))
    assert not any("off the votes" in row.note for row in rows)


def jointly_skewed(images: int, pairs: int, seed: int) -> Tensor:
    """Margins with a common even part that goes with the product of their odd parts, (images,
    draws, 2): skewed together, not singly."""
    z = torch.randn(
        2, images, pairs, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    even = 0.4 + 0.25 * (z[0] * z[1])[:, :, None].expand(-1, -1, 2)
    odd = torch.stack([z[0], z[1]], 2)
    return torch.stack([even + odd, even - odd], 2).flatten(1, 2)


def test_joint_skewness_is_corrected() -> None:
    """The normal fit is off by .02 to .04 whatever the draws; corrected, two thirds of that are
    gone, and intervals cover."""
    truth = float((jointly_skewed(1, 10**6, 1) > 0).all(2).double().mean())
    fits = fit_margins([MarginStatistics.from_margins(jointly_skewed(200, 256, 2))])
    value = np.array([fit.value for fit in fits])
    correction = np.array([fit.correction for fit in fits])
    plain = float((value - correction).mean()) - truth
    assert abs(plain) > 0.02
    assert abs(float(value.mean()) - truth) < abs(plain) / 3
    assert (correction != 0).mean() > 0.95
    covered = np.mean([fit.lower <= truth <= fit.upper for fit in fits])
    assert covered >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 200)
    assert fits[0].shape.skew_correction == pytest.approx(correction[0], abs=1e-9)


def test_the_interval_says_what_it_covers() -> None:
    """Fits are approximate, corrected or not; votes are not, and go along with both."""
    rows = LogitGaussian(draws=128).estimate(work_on(curved(), sigma=0.6, images=60))
    assert any(e.fit is not None and e.fit.skew_correction is not None for e in rows)
    assert {e.interval.text for e in rows} - {"antithetic pairs"} == {"jackknife:approximate"}
    assert all(e.votes is not None and e.votes.split is not None for e in rows)


def test_more_classes_than_draws() -> None:
    """Low rank covariance, and classes beyond the 64 that compete: still close to mc."""
    batch = work_on(linear(150), sigma=0.1, images=10)
    truth = values(build("mc", draws=4096).estimate(batch))
    assert np.abs(values(LogitGaussian(draws=64).estimate(batch)) - truth).max() < 0.15
    assert np.sqrt(np.mean((values(LogitGaussian(draws=1024).estimate(batch)) - truth) ** 2)) < 0.03


def test_votes_of_agreeing_pairs_are_fewer_draws() -> None:
    independent = torch.tensor([1, 0, 0, 1] * 16)
    agreeing = torch.tensor([1, 1, 0, 0] * 16)
    assert [vote_error(kept) for kept in (independent, agreeing)] == [
        pytest.approx(0.5 / math.sqrt(n)) for n in (64, 32)
    ]
    narrow, wide = (
        by_votes(Votes((32, 32), split=split), kept, 0)
        for split, kept in ((32, independent), (0, agreeing))
    )
    assert narrow.value == wide.value == 0.5
    assert known(wide.lower) < known(narrow.lower)


def test_copies_that_are_not_finite_are_counted() -> None:
    """They voted for nobody; accuracy under noise divides by all copies."""

    def broken(x: Tensor) -> Tensor:
        return torch.where(x.flatten(1).sum(1, keepdim=True) > 12.5, torch.nan, skewed(x))

    batch = work_on(broken, sigma=0.3, images=8)
    rows = LogitGaussian(draws=64).estimate(batch)
    assert any(known(row.votes).lost for row in rows)
    for row, label in zip(rows, batch.predicted.tolist(), strict=True):
        assert known(row.votes).draws == 64
        if row.note.startswith("margins are not normal"):
            assert row.value == known(row.votes).counts[label] / 64


def warned(above_votes: Sequence[float]) -> list[str]:
    """The warnings of a review of rows of 1,000 votes."""
    review = FitReview()
    for above in above_votes:
        kept = round(1000 * (0.5 - above))
        result = Result(
            kept / 1000 + above,
            forwards=1,
            votes=Votes((kept, 1000 - kept)),
            fit=NormalFit(0.0, 0.0),
        )
        review.add(result, predicted=0)
    return review.warnings("fit", sigma(0.5))


def test_a_review_tells_when_the_fits_are_off_the_votes_on_average() -> None:
    chance = np.random.default_rng(0).normal(0.0, 0.05, 200)
    (line,) = warned([*(0.03 + chance)])
    assert line.startswith("fit: its values at sigma 0.5 are 0.0")
    assert "above the votes of the same copies, on average over 200 images: use mc" in line
    (line,) = warned([*(chance - 0.03)])
    assert " below the votes" in line
    assert warned([*chance]) == []
    assert warned([*(0.009 + 0.1 * chance)]) == [], "sure, but too little to matter"
    assert warned([0.3] * 9) == [], "too few images"
