"""On linear models the closed form is known: what taylor, mmse and mc must say."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import multivariate_normal

from tests.unit.engine.tools import build, linear, weights, work_on


def _few(name: str) -> dict[str, int]:
    return {"draws": 2} if name == "mmse" else {}


@pytest.mark.parametrize("name", ["taylor", "mmse"])
def test_many_classes_agree_with_scipy(name: str) -> None:
    sigma = 0.4
    classes = 6
    network = linear(classes, dtype=torch.float64)
    work = work_on(network, sigma=sigma, dtype=torch.float64)
    weight = weights(network)
    for b, estimate in enumerate(build(name, **_few(name)).estimate(work)):
        t = int(work.predicted[b])
        u = weight[t] - weight[work.others[b]]
        s = sigma * u.norm(dim=1)
        correlation = (u @ u.T) * sigma**2 / (s[:, None] * s[None, :])
        limits = (work.margins[b] / s).numpy()
        expected = multivariate_normal.cdf(
            limits, cov=correlation.numpy(), maxpts=10**6, abseps=1e-6, releps=1e-6, rng=1
        )
        # the CDF's own tolerance of 1e-3 and SciPy's
        assert estimate.value == pytest.approx(expected, abs=1.5e-3)


def test_published_iid_draws_carry_the_error_the_pairs_remove() -> None:
    """With iid draws z errs by N(0, 1/N) even on a linear model; with pairs it does not (Han et
    al., Proposition 3.3)."""
    samples = 8
    images = 200
    network = linear(2, dtype=torch.float64)
    work = work_on(network, sigma=0.5, dtype=torch.float64, images=images)
    exact = torch.tensor([e.value for e in build("taylor").estimate(work)], dtype=torch.float64)
    iid = torch.tensor(
        [e.value for e in build("mmse", draws=samples, pairs=False).estimate(work)],
        dtype=torch.float64,
    )
    pairs = torch.tensor(
        [e.value for e in build("mmse", draws=samples).estimate(work)], dtype=torch.float64
    )
    assert float((pairs - exact).abs().max()) < 1e-9
    inside = (exact > 1e-6) & (exact < 1 - 1e-6)
    error = torch.special.ndtri(iid[inside]) - torch.special.ndtri(exact[inside])
    n = int(inside.sum())
    assert n > 50
    assert float(error.std()) == pytest.approx(
        1 / math.sqrt(samples), abs=4 / math.sqrt(samples * 2 * n)
    )


def test_softmax_is_taylor_mvs_when_gradients_have_one_length() -> None:
    """Han et al., Lemma A.4: T = sigma k when all ||u_i|| = k. With two classes there is one u."""
    network = linear(2, dtype=torch.float64)
    sigma = 0.3
    work = work_on(network, sigma=sigma, dtype=torch.float64)
    weight = weights(network)
    temperature = sigma * float((weight[0] - weight[1]).norm())
    for a, b in zip(
        build("softmax", temperature=temperature).estimate(work),
        build("taylor_mvs").estimate(work),
        strict=True,
    ):
        assert a.value == pytest.approx(b.value, abs=1e-12)
