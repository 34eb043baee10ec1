"""moments: exact on linear networks, near Monte Carlo on others, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robaudit.errors import ModelError
from robaudit.methods.average_case.chain import chain_of
from robaudit.methods.average_case.moment_propagation import (
    Moments,
    closed_forms,
    first_covariance,
    logit_moments,
)
from robaudit.methods.average_case.taylor import Taylor
from robaudit.models import from_module
from robaudit.models.architectures import mlp
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.uniform import Uniform
from tests.golden import Golden
from tests.unit.engine.tools import SHAPE, curved, linear, values, work_on
from tests.unit.methods.certificates.test_network_bounds import seeded

IMAGE = torch.full(SHAPE, 0.5)


def dense() -> nn.Module:
    return seeded(lambda: mlp((24, 60, 40, 4)))


def convolutions() -> nn.Module:
    return seeded(
        lambda: nn.Sequential(
            nn.Conv2d(2, 8, 2, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.AvgPool2d(2),
            nn.Conv2d(8, 10, 2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(),
            nn.Linear(10, 4),
        )
    )


def test_a_linear_network_is_exact() -> None:
    work = work_on(linear(5), images=10)
    for (ours,), (theirs,) in zip(values(Moments(), work), values(Taylor(), work), strict=True):
        assert ours.value == pytest.approx(theirs.value, abs=2e-3)
        assert ours.flips_to == theirs.flips_to
        assert (ours.lower, ours.upper, ours.forwards, ours.backwards) == (None, None, 1, 0)


@pytest.mark.parametrize("make", [dense, convolutions])
def test_near_monte_carlo(make: Callable[[], nn.Module]) -> None:
    """Means and covariances of logits within 6 standard errors and 5 % of their scale, p_robust
    within .03."""
    work = work_on(make(), images=4, sigma=0.3)
    chain = chain_of(work.engine.model, work.x[0])
    first = first_covariance(chain, work.x[0])
    draws = 20_000
    noise = torch.randn(draws, *SHAPE, generator=torch.Generator().manual_seed(3))
    for i, (found,) in enumerate(values(Moments(), work)):
        with torch.no_grad():
            logits = work.engine.model(work.x[i] + 0.3 * noise).double()
        moments = logit_moments(chain, work.x[i], 0.3, 4, first)
        covariance = torch.cov(logits.T)
        error = (covariance.diagonal() / draws).sqrt()
        assert (
            (moments.mean - logits.mean(0)).abs() <= 6 * error + 0.05 * covariance.diagonal().sqrt()
        ).all()
        scale = covariance.diagonal().sqrt()
        assert ((moments.covariance - covariance).abs() <= 0.08 * scale[:, None] * scale).all()
        p = (logits.argmax(1) == work.predicted[i]).double().mean().item()
        assert found.value == pytest.approx(p, abs=0.03)
        assert found.numbers["p_c"] >= found.value - 1e-3


def test_the_closed_forms() -> None:
    """Of two and of four classes."""
    mean = torch.tensor([[1.0, 0.5, -0.2, 0.3]], dtype=torch.float64)
    covariance = torch.diag(torch.tensor([0.25, 1.0, 0.3, 0.49], dtype=torch.float64))[None]
    y = torch.tensor([0])
    (found,) = closed_forms(mean, covariance, y)
    assert found["smoothed_margin"] == pytest.approx(1.0 - float(_clark(0.5, 0.3, 1.0, 0.7)))
    correlated = covariance.clone()
    correlated[0, 0, 1] = correlated[0, 1, 0] = 0.4
    (more,) = closed_forms(mean, correlated, y)
    assert more["p_c"] > found["p_c"]
    (two,) = closed_forms(mean[:, :2], covariance[:, :2, :2], y)
    assert two["smoothed_margin"] == pytest.approx(0.5)


def _clark(m1: float, m2: float, s1: float, s2: float) -> Tensor:
    spread = torch.tensor((s1**2 + s2**2) ** 0.5, dtype=torch.float64)
    a = (m1 - m2) / spread
    standard = torch.distributions.Normal(
        torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64)
    )
    found: Tensor = (
        m1 * standard.cdf(a) + m2 * standard.cdf(-a) + spread * standard.log_prob(a).exp()
    )
    return found


@pytest.mark.parametrize(
    "make",
    [dense, convolutions, lambda: seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(24, 1)))],
)
def test_the_chain_is_the_network(make: Callable[[], nn.Module]) -> None:
    model = from_module(make(), mean=[0.4, 0.5], std=[0.5, 0.25], dtype=torch.float64)
    chain = chain_of(model, IMAGE)
    x = torch.rand(5, *SHAPE, dtype=torch.float64)
    torch.testing.assert_close(chain.logits(x), model(x).double(), rtol=1e-9, atol=1e-9)
    assert chain_of(model, IMAGE) is chain


def test_a_log_softmax_at_the_end_is_left_out() -> None:
    plain = mlp((24, 30, 4))
    network = seeded(lambda: nn.Sequential(plain, nn.LogSoftmax(1)))
    works = [work_on(one, images=3) for one in (plain, network)]
    for (a,), (b,) in zip(*(values(Moments(), work) for work in works), strict=True):
        assert a.value == b.value


def with_layer(layer: nn.Module) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 1), layer, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head((x + F.relu(x)).flatten(1))
        return out


@pytest.mark.parametrize(
    "network",
    [
        curved(),
        with_layer(nn.MaxPool2d(2)),
        Residual(),
    ],
)
def test_what_it_cannot_follow_is_named(network: nn.Module, golden: Golden) -> None:
    with pytest.raises(ModelError) as error:
        Moments().check_model(from_module(network.eval()), IMAGE)
    golden(error.value)


def test_a_layer_that_is_too_wide(golden: Golden) -> None:
    model = from_module(dense())
    Moments(features=60).check_model(model, IMAGE)
    with pytest.raises(ModelError) as caught:
        Moments(features=59).check_model(model, IMAGE)
    golden(caught.value)


def test_other_noise_is_refused() -> None:
    assert Moments().unfit(Gaussian()) == ""
    assert Moments().unfit(Gaussian(clip=True)) == "clipped pixels are not normal"
    assert "Gaussian noise" in Moments().unfit(Uniform())
