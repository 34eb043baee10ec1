"""Each objective on a case whose value, optimum or gradient is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robaudit.errors import ModelError
from robaudit.methods.training.margin_moments import logit_moments
from robaudit.methods.training.network import objective_class
from robaudit.methods.training.orthogonal import orthogonalise
from robaudit.methods.training.training_objective import Batch, Objective
from tests.golden import Golden

SIGMA = {"sigma": [0.3]}
BOX = {"kind": "uniform", "eps": [0.1]}
ROOT2 = math.sqrt(2)


def objective(name: str, **options: Any) -> Objective:
    return objective_class(name).model_validate(options)


def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Sequential:
    """Logits W x + b of flat pixels, float64."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(torch.zeros(len(weight)) if bias is None else bias)
    return nn.Sequential(nn.Flatten(), layer)


def batch(network: nn.Module, images: int = 5, pixels: int = 4, classes: int = 3) -> Batch:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand((images, 1, 1, pixels), generator=generator, dtype=torch.float64)
    return Batch(network, x, torch.arange(images) % classes)


W = torch.tensor(
    [[1.0, -2.0, 0.5, 0.0], [0.5, 1.0, -1.0, 2.0], [-1.0, 0.0, 1.5, 1.0]], dtype=torch.float64
)


class LogLoss(nn.Module):
    """The case G1: log l = log 0.05 + 0.5 sum(pixels) for the label 0."""

    def forward(self, images: Tensor) -> Tensor:
        log_loss = math.log(0.05) + 0.5 * images.flatten(1).sum(1)
        return torch.stack([torch.zeros_like(log_loss), torch.expm1(log_loss.exp()).log()], 1)


def golden(name: str, repeats: int = 5, **options: Any) -> Tensor:
    """log Z of G1 as the objective has it, from the mean over 10 images, repeated."""
    x = torch.zeros((10, 1, 10, 10), dtype=torch.float64)
    found = []
    for seed in range(repeats):
        torch.manual_seed(seed)
        case = Batch(LogLoss(), x, torch.zeros(10, dtype=torch.int64))
        found.append(objective(name, noise=BOX, **options).loss(case).log())
    return torch.stack(found)


@pytest.fixture(autouse=True)
def own_randomness() -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def test_cross_entropy_has_the_gradient_of_logistic_regression() -> None:
    network = linear(W)
    case = batch(network)
    objective("cross_entropy").loss(case).backward()
    flat = case.images.flatten(1)
    expected = ((flat @ W.T).softmax(1) - F.one_hot(case.labels, 3)).T @ flat / len(flat)
    assert torch.allclose(next(network[1].parameters()).grad, expected)  # type: ignore[arg-type]


def test_augmentation_is_the_mean_loss_under_noise() -> None:
    """E softplus(s), s ~ N(0, 0.3^2 |w|^2) with |w| = 2, by quadrature; the label is of no account
    by symmetry."""
    case = Batch(
        linear(torch.tensor([[2.0], [0.0]])),
        torch.zeros((20_000, 1, 1, 1), dtype=torch.float64),
        torch.arange(20_000) % 2,
    )
    s = 0.6 * torch.linspace(-8, 8, 4001, dtype=torch.float64)
    density = torch.exp(-s.square() / (2 * 0.36))
    mean, square = ((F.softplus(s) ** power * density).sum() / density.sum() for power in (1, 2))
    error = math.sqrt(float(square - mean**2) / 20_000)
    assert objective("augmentation", noise=SIGMA).loss(case).item() == pytest.approx(
        float(mean), abs=4 * error
    )


@pytest.mark.parametrize("clip", [False, True])
def test_copies_are_clipped_where_the_noise_is(clip: bool) -> None:
    form = objective("augmentation", noise={"sigma": [2.0], "clip": clip})
    images = batch(linear(W)).images
    copies = form.noisy(images, form.normals(images))  # type: ignore[attr-defined]
    assert bool(((copies >= 0) & (copies <= 1)).all()) is clip


def test_gradient_norm_of_a_linear_model() -> None:
    case = batch(linear(W))
    flat = case.images.flatten(1)
    slopes = ((flat @ W.T).softmax(1) - F.one_hot(case.labels, 3)) @ W
    expected = F.cross_entropy(flat @ W.T, case.labels) + 0.3 * slopes.square().sum(1).mean()
    assert objective("gradient_norm", weight=0.3).loss(case).item() == pytest.approx(
        expected.item(), rel=1e-12
    )
    assert objective("gradient_norm", weight=0.0).loss(case).item() == pytest.approx(
        objective("cross_entropy").loss(case).item(), rel=1e-12
    )


def test_qnorm_is_the_mean_at_1_and_the_largest_at_infinity() -> None:
    case = batch(linear(W))
    m = 50
    form = objective("qnorm_mc", noise=SIGMA, draws=m)

    def at(q: float) -> float:
        torch.manual_seed(1)
        return objective("qnorm_mc", noise=SIGMA, draws=m, q=q).loss(case).item()

    torch.manual_seed(1)
    image = case.rows(m)
    copies = form.noisy(case.images[image], form.normals(case.images[image]))  # type: ignore[attr-defined]
    losses = F.cross_entropy(case.logits(copies), case.labels[image], reduction="none").view(-1, m)
    assert at(1.0) == pytest.approx(losses.mean().item(), rel=1e-12)
    assert at(1e6) == pytest.approx(losses.amax(1).mean().item(), rel=1e-5)
    assert all(low < high for low, high in pairwise(map(at, (0.5, 1, 2, 10, 100, 1000))))


def test_qnorm_path_meets_the_golden_numbers() -> None:
    for q, exact in ((1.0, 0.052127), (10.0, 0.075586)):
        found = golden("qnorm_path", q=q)
        assert found.mean().item() == pytest.approx(
            math.log(exact), abs=4 * found.std().item() / math.sqrt(len(found))
        )


def test_qnorm_path_is_nearer_to_large_norms_than_copies() -> None:
    for q, exact in ((100.0, 0.742032), (1000.0, 4.682119)):
        path, copies = (
            math.log(exact) - golden(name, q=q, repeats=2).mean().item()
            for name in ("qnorm_path", "qnorm_mc")
        )
        assert 0 < path < 0.1 * copies  # both are too low: the chains lag


@pytest.mark.parametrize(("norm", "dual"), [("linf", 1), ("l2", 2)])
def test_pgd_finds_the_worst_point_of_a_linear_model(norm: str, dual: int) -> None:
    weight = torch.tensor([[1.0, -2.0, 0.5, 0.0], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    case = batch(linear(weight), classes=2)
    sign = 2.0 * case.labels - 1  # of the logit difference in the loss
    margins = case.images.flatten(1) @ weight[0]
    worst = F.softplus(sign * margins + 0.2 * weight[0].norm(p=dual)).mean()
    loss = objective("pgd", eps=0.2, norm=norm, clip=False).loss(case)
    assert loss.item() == pytest.approx(worst.item(), rel=1e-6)


def test_pgd_keeps_to_the_box_of_pixels() -> None:
    case = Batch(
        linear(torch.tensor([[1.0], [0.0]])),
        torch.full((2, 1, 1, 1), 0.05, dtype=torch.float64),
        torch.zeros(2, dtype=torch.int64),
    )
    loss = objective("pgd", eps=0.2).loss(case)
    assert loss.item() == pytest.approx(math.log(2))  # at the pixel 0


def test_hinge_and_mcr_by_hand() -> None:
    case = Batch(
        linear(torch.eye(3, dtype=torch.float64)),
        torch.tensor([[[[0.9, 0.5, 0.1]]], [[[0.2, 0.3, 1.0]]]]).double(),
        torch.tensor([0, 1]),
    )
    assert objective("hinge", d=0.5).loss(case).item() == pytest.approx(
        ((0.1 + 0) + (0.4 + 1.2)) / 2
    )
    radii = (0.4 / (ROOT2 * 2), -0.7 / (ROOT2 * 2))
    assert objective("mcr", d=0.5, lipschitz=2.0).loss(case).item() == pytest.approx(
        sum(0.5 - r for r in radii) / 2
    )
    assert objective("mcr", d=0.1, lipschitz=2.0).loss(case).item() == pytest.approx(
        (0.1 - radii[1]) / 2
    )


def test_smoothed_objectives_of_a_linear_model() -> None:
    """The golden numbers of Clark's formula: means 1 and 0.5, deviations 1 and 0.7; the label's
    class has 3 and 0.5."""
    bias = torch.tensor([1.0, 0.5, 3.0])
    deviations = torch.tensor([1.0, 0.7, 0.5])
    case = Batch(
        linear(torch.diag(deviations).double(), bias),
        torch.zeros((2, 1, 1, 3), dtype=torch.float64),
        torch.tensor([2, 2]),
    )
    mscr = objective("mscr", d=5.0, sigma=1.0).loss(case).item()
    assert mscr == pytest.approx(5 + (1.277263 - 3) / ROOT2, abs=1e-6)
    zhen = objective("zhen", d=5.0, sigma=1.0).loss(case).item()
    assert zhen == pytest.approx(5 - (3 - 1) / math.sqrt(0.25 + 1))
    assert objective("zhen", d=1.0, sigma=1.0).loss(case).item() == 0
    mean = objective("smoothed_cross_entropy", sigma=1.0).loss(case).item()
    assert mean == pytest.approx(math.log(1 + math.exp(-2) + math.exp(-2.5)))


def test_moments_through_relu_are_those_of_samples() -> None:
    torch.manual_seed(3)
    network = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    orthogonalise(network, "")  # so that hidden values are independent, and variances exact
    x = torch.rand((1, 1, 2, 3), dtype=torch.float64)
    draws = 50_000
    sigma = 0.8
    with torch.no_grad():
        mean, variance = logit_moments(network, x, sigma)
        samples = network(x + sigma * torch.randn((draws, 1, 2, 3), dtype=torch.float64))
    assert torch.all((samples.mean(0) - mean[0]).abs() < 5 * (samples.var(0) / draws).sqrt())
    fourth = (samples - samples.mean(0)).pow(4).mean(0)
    assert torch.all(
        (samples.var(0) - variance[0]).abs() < 5 * ((fourth - samples.var(0) ** 2) / draws).sqrt()
    )


def test_moments_need_a_chain_of_linear_layers(golden: Golden) -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Flatten(), nn.Linear(8, 2))
    with pytest.raises(ModelError) as caught:
        objective("zhen").check(
            Batch(network, torch.zeros(1, 1, 2, 2), torch.zeros(1, dtype=torch.int64))
        )
    golden(caught.value)


CASES: dict[str, dict[str, Any]] = {
    "gradient_norm": {"weight": 0.5},
    "qnorm_mc": {"noise": SIGMA, "q": 20.0, "draws": 7},
    "pgd": {"eps": 0.1, "steps": 3},
    "mscr": {"sigma": 0.5},
}


def finite_difference(
    loss: Callable[[], Tensor], parameters: list[Tensor], along: list[Tensor], h: float = 1e-6
) -> float:
    """The slope of a loss along a direction in the space of the weights."""
    values = []
    for step in (h, -2 * h):
        with torch.no_grad():
            for parameter, direction in zip(parameters, along, strict=True):
                parameter.add_(direction, alpha=step)
        values.append(loss().item())
    return (values[0] - values[1]) / (2 * h)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    torch.manual_seed(5)
    # where the worst point stays a corner
    hidden = [] if name == "pgd" else [nn.Linear(4, 6), nn.ReLU()]
    network = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(6 if hidden else 4, 3)).double()
    case = batch(network)
    tested = objective(name, **CASES[name])

    def loss() -> Tensor:
        torch.manual_seed(7)
        return tested.loss(case)

    parameters = list(network.parameters())
    along = [torch.randn_like(parameter) for parameter in parameters]
    gradients = torch.autograd.grad(loss(), parameters)
    slope = sum((g * v).sum().item() for g, v in zip(gradients, along, strict=True))
    assert finite_difference(loss, list(parameters), along) == pytest.approx(slope, rel=1e-5)


def test_searches_leave_batch_norm_and_mode_alone() -> None:
    norm = nn.BatchNorm2d(1)
    network = nn.Sequential(norm, nn.Flatten(), nn.Dropout(0.5), nn.Linear(4, 2)).double().train()
    case = batch(network, classes=2)
    for name, options in (("pgd", {"eps": 0.1}), ("qnorm_path", {"noise": BOX, "draws": 4})):
        assert norm.num_batches_tracked is not None
        before = norm.num_batches_tracked.item()
        objective(name, **options).loss(case)
        assert network.training
        assert norm.num_batches_tracked.item() == before + 1
