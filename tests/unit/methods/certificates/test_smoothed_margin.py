"""smoothed_margin: goldens, its confidence by repetition, and what it says of errors under the
noise."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from robaudit.engine import registry
from robaudit.errors import SpecError
from robaudit.levels import LevelName, NoiseLevel
from robaudit.methods.certificates.margin_radius import MarginRadius
from robaudit.methods.certificates.network_bounds import lipschitz_bound
from robaudit.methods.certificates.smoothed_margin import SmoothedMargin
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.uniform import Uniform
from robaudit.numerics.normal import normal_cdf
from tests.golden import Golden
from tests.unit.engine.tools import chunk, curved, known, linear, values, work_on
from tests.unit.methods.certificates.test_margin_radius import golden_work


def in_l2(**options: object) -> SmoothedMargin:
    return SmoothedMargin.model_validate({"norm": "l2", **options})


def test_the_golden() -> None:
    """K = 1, margin sqrt 2, sigma .3: the mean of L is -sqrt 2 of a linear network, and 1000 draws
    cost sigma sqrt(2 ln 1000 / 1000)."""
    network, x = golden_work()
    work = chunk(network, x, level=0.3)
    ((l2, linf),) = values(SmoothedMargin(), work)
    numbers = l2.numbers
    proof = known(l2.certificate)
    error = 0.3 * math.sqrt(2) / math.sqrt(1000)  # of the mean of L
    assert numbers["smoothed_margin"] == pytest.approx(math.sqrt(2), abs=4 * error)
    expected = numbers["smoothed_margin"] / math.sqrt(2) - 0.3 * math.sqrt(
        2 * math.log(1000) / 1000
    )
    assert l2.value == pytest.approx(expected, rel=1e-5)
    assert proof.p_error == pytest.approx(math.exp(-(l2.value**2) / (2 * 0.3**2)), rel=1e-6)
    assert (proof.p_lower, proof.alpha) == (None, 0.001)
    # |w|_1 = 1.4 |w|_2 (w of length 1)
    assert linf.value == pytest.approx(expected / (1.4 / math.sqrt(1)), rel=1e-5)
    assert known(linf.certificate).p_error == proof.p_error
    assert (l2.forwards, l2.lower, l2.upper) == (1001, l2.value, None)


def test_without_noise_it_is_the_certificate_of_the_network() -> None:
    """With the largest constant of all margins, for sigma towards 0."""
    work = work_on(curved(), images=8, sigma=1e-6)
    bound = lipschitz_bound(work.engine.model, work.x[0])
    constants = bound.of_loss("l2", work.predicted)
    own = work.logits.gather(1, work.predicted[:, None])
    margin = (own - work.logits).sort(1).values[:, 1]
    for (found,), expected in zip(
        values(in_l2(draws=20), work), (margin / constants).tolist(), strict=True
    ):
        assert found.value == pytest.approx(expected, rel=1e-3)
    for (a,), (b,) in zip(
        values(in_l2(draws=20), work), values(MarginRadius(norm=("l2",)), work), strict=True
    ):
        assert a.value <= b.value * (1 + 1e-3)


def test_the_confidence_is_kept() -> None:
    """alpha = .5, 4 draws: the lower bound of the exact mean margin fails in at most half of the
    cases (the concentration is loose)."""
    work = work_on(linear(2), images=200, sigma=1.0)
    (bound,) = {
        float(b) for b in lipschitz_bound(work.engine.model, work.x[0]).margins["l2"].flatten() if b
    }
    exact = (
        work.logits[:, 0] - work.logits[:, 1]
    ).abs() / bound  # the mean margin over its constant, as the network is linear
    found = torch.tensor([one.value for (one,) in values(in_l2(draws=4, alpha=0.5), work)])
    wrong = (found > exact).double().mean().item()
    assert 0 < wrong <= 0.5 + 3 * math.sqrt(0.25 / 200)


def test_errors_under_the_noise_are_rarer_than_p_error() -> None:
    """On a linear network, whose probability of an error is Phi(-distance / sigma)."""
    work = work_on(linear(2), images=100, sigma=0.3)
    (bound,) = {
        float(b) for b in lipschitz_bound(work.engine.model, work.x[0]).margins["l2"].flatten() if b
    }
    distance = (work.logits[:, 0] - work.logits[:, 1]).abs() / bound
    wrong = normal_cdf(-distance / 0.3)
    stated = torch.tensor(
        [known(one.certificate).p_error for (one,) in values(in_l2(draws=500), work)]
    )
    assert (stated >= wrong).all()
    assert (stated < 1).any()


def test_a_draw_without_finite_logits_certifies_nothing() -> None:
    class Breaks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear(3)
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.inner(x)
            return torch.where(x.flatten(1).amax(1, keepdim=True) > 2.0, torch.nan, out)

    lipschitz = {"l2": 100.0, "source": "a test"}
    work = work_on(Breaks(), images=8, sigma=0.6)
    found = values(in_l2(draws=30, lipschitz=lipschitz), work)
    lost = [one for (one,) in found if "not_finite" in one.numbers]
    assert lost
    for one in lost:
        assert one.value == 0.0
        assert (
            f"{one.numbers['not_finite']} noisy copies gave non-finite logits: nothing is certified"
            in one.note
        )
        assert known(one.certificate).label is None


def test_other_noise_is_refused(golden: Golden) -> None:
    task = registry.Task(SmoothedMargin(), "smoothed_margin", NoiseLevel("box", 0.1, LevelName.EPS))
    with pytest.raises(SpecError) as caught:
        registry.refuse_unfit([task], {"box": Uniform()})
    golden(caught.value)
    assert SmoothedMargin().unfit(Gaussian()) == ""
    assert SmoothedMargin().unfit(Gaussian(clip=True)) == ""
