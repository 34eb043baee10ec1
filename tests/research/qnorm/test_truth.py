"""Norms known by two computations that share nothing, and the intervals of `qnorm_path` beside
them."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import binom

from robaudit.noise.gaussian import Gaussian
from tests.research.coverage.subjects import digits
from tests.research.qnorm import study
from tests.research.qnorm.networks import NAMES, SIGMA, network, under_gaussian
from tests.research.qnorm.truth import (
    Box,
    box_importance,
    importance,
    in_pixels,
    log_loss,
    sequential,
)
from tests.shared import needs_shared

NAME = "narrow MLP"
FEW = 3


def agree(copies: torch.Tensor, particles: torch.Tensor, q: float, number: int) -> None:
    """Within some standard errors of sequential Monte Carlo, whose error of log E[l^q] is about
    2.5 of a mean over as many draws."""
    assert (copies - particles).abs().max() < 4 * 2.5 / math.sqrt(number) / q + 0.003


@pytest.mark.parametrize("q", [1.0, 10.0])
def test_two_computations_agree_under_gaussian_noise(q: float) -> None:
    problem = under_gaussian(NAME, FEW)
    copies, sizes = importance(problem, q, 8000, seed=0)
    assert sizes.min() > 200
    agree(copies, sequential(problem, (q,), 400, seed=0)[0], q, 400)


def test_two_computations_agree_in_a_box() -> None:
    x, labels = digits(train=False)
    box = Box(network(NAME), x[:FEW], labels[:FEW], 0.5)
    copies, sizes = box_importance(box, 10.0, 30_000, seed=0)
    assert sizes.min() > 200
    agree(copies, sequential(box.in_normals, (10.0,), 400, seed=0)[0], 10.0, 400)


def test_the_row_space_is_all_that_matters() -> None:
    """The same norm from all pixels."""
    x, labels = digits(train=False)
    pixels = in_pixels(network(NAME), x[:FEW], labels[:FEW], Gaussian(), SIGMA)
    everywhere = sequential(pixels, (3.0,), 400, seed=1)[0]
    within = sequential(under_gaussian(NAME, FEW), (3.0,), 400, seed=0)[0]
    agree(everywhere, within, 3.0, 200)


def test_small_losses_keep_their_digits() -> None:
    """A margin of 60 and of -60, of two classes."""
    logits = torch.tensor([[[60.0, 0.0], [0.0, 60.0]]], dtype=torch.float64)
    found = log_loss(logits, torch.zeros(1, dtype=torch.int64))[0]
    assert found.tolist() == pytest.approx([-60.0, math.log(60.0)])


@pytest.mark.parametrize("noise", ["gaussian", "uniform"])
def test_intervals_cover(noise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four images with two seeds: at most what a binomial count of 5 % exceeds once in a
    thousand."""
    monkeypatch.setattr(study, "COPIES", 20_000)
    monkeypatch.setattr(study, "BOX_COPIES", 100_000)
    monkeypatch.setattr(study, "PARTICLES", 256)
    for found in study.lines(NAME, noise, 4, 2):
        assert found.rows == 8
        assert found.without == 0
        assert found.high + found.low <= binom.ppf(0.999, 8, 0.05), found


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("noise", study.NOISES)
def test_all_networks(name: str, noise: str) -> None:
    """Of each side 4 %, and what a binomial count exceeds once in a thousand; the same of gates."""
    for found in study.lines(name, noise, 10, 10):
        assert found.without <= found.rows / 50
        most = binom.ppf(0.999, found.rows, 0.04)
        assert found.high <= most, found
        assert found.low <= most, found
        assert max(found.gates) <= binom.ppf(0.999, found.audits, 0.025), found


@needs_shared
@pytest.mark.slow
@pytest.mark.parametrize("model", ["fashion_logistic", "mnist_spectral_mlp", "cifar10_cnn_a_mix"])
def test_shared_networks_give_every_image_a_value(model: str) -> None:
    for found in study.values(model, 10):
        assert found.without == 0, found
        assert found.falls == 0, found
        assert found.above == 0, found
