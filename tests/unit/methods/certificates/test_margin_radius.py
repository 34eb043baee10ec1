"""margin_radius: goldens, exact on linear networks, never beaten by an attack, and what it
refuses."""

from __future__ import annotations

import math

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from robaudit.errors import ModelError
from robaudit.methods.certificates.margin_radius import MarginRadius
from robaudit.methods.radius.radius_attack import RadiusAttack
from robaudit.methods.radius.radius_exact import RadiusExact
from robaudit.models import from_module
from robaudit.models.architectures import mlp, small_cnn
from robaudit.quantities import CERTIFIED, IntervalKind
from tests.golden import Golden
from tests.unit.engine.tools import SHAPE, chunk, curved, known, linear, values, work_on

W = torch.tensor([0.6, 0.8]) / math.sqrt(2)


class TwoPixels(nn.Module):
    """Logits +-w . x of the first two pixels, |(w, -w)|_2 = 1: the boundary is at distance w . x /
    |w|."""

    def forward(self, x: Tensor) -> Tensor:
        projected = x.flatten(1)[:, :2] @ W
        return torch.stack([projected, -projected], 1)


def golden_work(x: tuple[float, float] = (1.0, 0.5)) -> tuple[nn.Module, Tensor]:
    image = torch.zeros(1, *SHAPE)
    image.view(-1)[:2] = torch.tensor(x)
    return TwoPixels(), image


def seeded(network: nn.Module, seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(
                torch.randn(parameter.shape, generator=generator)
                / max(1, parameter[0].numel()) ** 0.5
            )
    return network.eval()


@pytest.mark.parametrize("lipschitz", [None, {"l2": 1.0, "source": "its rows"}])
def test_the_golden(lipschitz: dict[str, object] | None) -> None:
    """K = 1, x = (1, .5): margin sqrt 2, constant of the margin sqrt 2, radius 1, which is the true
    distance."""
    network, x = golden_work()
    ((estimate,),) = values(
        MarginRadius.model_validate({"norm": "l2", "lipschitz": lipschitz}),
        chunk(network, x, level=0.3),
    )
    numbers = estimate.numbers
    assert estimate.value == pytest.approx(1.0, rel=1e-5)
    assert estimate.value <= 1.0
    assert numbers["margin"] == pytest.approx(math.sqrt(2), rel=1e-6)
    assert numbers["lipschitz"] == pytest.approx(math.sqrt(2), rel=1e-6)
    assert numbers["lipschitz_of_logits"] == pytest.approx(1.0, rel=1e-6)
    assert known(estimate.certificate).label == 0
    assert (estimate.lower, estimate.upper) == (estimate.value, None)
    assert estimate.interval.kind is IntervalKind.LOWER_BOUND
    assert estimate.note == ("Lipschitz constant declared: its rows" if lipschitz else "")
    assert MarginRadius.quantity == CERTIFIED


def test_a_tie_abstains() -> None:
    network, x = golden_work((0.8, -0.6))
    for estimate in values(MarginRadius(), chunk(network, x, level=0.3))[0]:
        assert estimate.value == 0.0
        assert known(estimate.certificate).label is None


def test_a_linear_network_has_its_radius() -> None:
    """Both norms; the certificate stays below by rounding alone."""
    batch = work_on(linear(5), images=30)
    certified = values(MarginRadius(), batch)
    exact = values(RadiusExact(), batch)
    for ours, theirs in zip(certified, exact, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert b.value * (1 - 1e-4) - 1e-5 <= a.value <= b.value * (1 + 1e-7)


def convolutions() -> nn.Module:
    inner = small_cnn(
        in_channels=2, image_size=4, channels=(3, 4), kernel=2, stride=1, hidden=6, num_classes=4
    )
    return nn.Sequential(nn.Upsample(size=(4, 4)), inner)


@pytest.mark.parametrize(
    "network",
    [curved(), seeded(mlp((24, 12, 8, 4))), seeded(convolutions())],
    ids=["curved", "dense", "convolutions"],
)
def test_no_attack_is_nearer(network: nn.Module) -> None:
    batch = work_on(network, images=8)
    certified = values(MarginRadius(), batch)
    attacked = values(RadiusAttack(), batch)
    assert all(
        a.value <= b.value
        for ours, theirs in zip(certified, attacked, strict=True)
        for a, b in zip(ours, theirs, strict=True)
    )
    assert all(a.value > 0 for ours in certified for a in ours)


def test_a_declared_constant_that_the_images_contradict(golden: Golden) -> None:
    batch = work_on(linear(4), images=6)
    with pytest.raises(ModelError) as caught:
        values(MarginRadius.model_validate({"lipschitz": {"l2": 1e-3, "source": "a guess"}}), batch)
    golden(caught.value)


def test_it_is_refused_before_the_run(golden: Golden) -> None:
    network = nn.Sequential(nn.LayerNorm(4), nn.Flatten(), nn.Linear(24, 3))
    with pytest.raises(ModelError) as caught:
        MarginRadius().check_model(from_module(network), torch.rand(SHAPE))
    golden(caught.value)
    MarginRadius.model_validate({"lipschitz": {"l2": 3, "source": "a theorem"}}).check_model(
        from_module(network), torch.rand(SHAPE)
    )


@pytest.mark.parametrize(
    "options",
    [
        {"lipschitz": {"l2": 1.0}},
        {"lipschitz": {"source": "nothing"}},
        {"norm": ["l2", "l2"]},
    ],
)
def test_bad_options(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        MarginRadius.model_validate(options)


@pytest.mark.parametrize("offset", [1e3, 1e5])
def test_no_rounding_flips_a_certified_image(offset: float) -> None:
    """A large bias that is taken away again leaves logits in steps of its last place: no
    certificate may count on them."""
    layer = nn.Linear(24, 4)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(4, 24, generator=torch.Generator().manual_seed(0)) / 10)
        layer.bias.fill_(offset)
    shift = nn.BatchNorm1d(4, affine=False, eps=2**-20)
    # it divides by 1
    shift.running_mean = torch.full((4,), offset)
    shift.running_var = torch.full((4,), 1 - 2**-20)
    network = nn.Sequential(nn.Flatten(), layer, shift).eval()
    x = torch.rand(200, *SHAPE, generator=torch.Generator().manual_seed(1)) / 10
    batch = chunk(network, x, level=0.3)
    weights = layer.weight.detach()
    certified = 0
    for image, label, (row,) in zip(
        x, batch.predicted.tolist(), MarginRadius(norm=("l2",)).estimate(batch), strict=True
    ):
        certified += row.value > 0
        for other in range(4):
            step = (weights[other] - weights[label]).reshape(SHAPE)
            if other != label and row.value > 0:
                steps = (
                    torch.linspace(0.2, 0.99, 40)[:, None, None, None]
                    * row.value
                    * step
                    / step.norm()
                )
                assert (network(image + steps).argmax(1) == label).all()
    assert 0 < certified < 200
