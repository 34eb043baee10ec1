"""Björck's iteration: orthogonal weights, the gradient on the way there, and plain weights at the
end."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from robaudit.errors import ModelError
from robaudit.methods.training.orthogonal import Orthogonal, orthogonalise, plain_state
from robaudit.models.architectures import mlp
from tests.golden import Golden


def nearest(a: Tensor) -> Tensor:
    """The polar factor, by singular values."""
    u, _, v = torch.linalg.svd(a, full_matrices=False)
    found: Tensor = u @ v
    return found


@pytest.mark.parametrize(("shape", "scale"), [((3, 5), 0.01), ((5, 3), 100.0), ((6, 6), 1.0)])
def test_the_nearest_orthogonal_matrix(shape: tuple[int, int], scale: float) -> None:
    a = scale * torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.allclose(Orthogonal()(a.clone()), nearest(a), atol=3e-4)


@pytest.mark.parametrize("shape", [(4, 6), (6, 4)])
def test_the_gradient_is_that_of_the_polar_factor(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(2)
    weight = nearest(torch.randn(shape, generator=generator, dtype=torch.float64))
    downstream, along = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    leaf = weight.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad((Orthogonal()(leaf) * downstream).sum(), leaf)
    h = 1e-5
    slope = ((nearest(weight + h * along) - nearest(weight - h * along)) * downstream).sum() / (
        2 * h
    )
    assert (gradient * along).sum().item() == pytest.approx(slope.item(), rel=1e-6)


def test_training_steps_keep_the_network_1_lipschitz_and_the_weights_are_plain_at_the_end() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = orthogonalise(mlp((12, 16, 16, 3)), "network")
        optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
        for _ in range(5):
            optimizer.zero_grad()
            network(torch.rand(8, 1, 3, 4)).square().sum().backward()
            optimizer.step()
        x = torch.rand(4, 1, 3, 4)
    wanted = mlp((12, 16, 16, 3))
    wanted.load_state_dict(plain_state(network))
    assert torch.allclose(wanted(x), network(x), atol=1e-6)
    for layer in wanted:
        if isinstance(layer, nn.Linear):
            values = torch.linalg.svdvals(layer.weight.detach())
            assert torch.allclose(values, torch.ones_like(values), atol=1e-4)


def test_other_layers_are_refused(golden: Golden) -> None:
    with pytest.raises(ModelError) as caught:
        orthogonalise(nn.Sequential(nn.Conv2d(1, 1, 1), nn.Linear(1, 1)), "spec.yaml:3")
    golden(caught.value)
    with pytest.raises(ModelError) as caught:
        orthogonalise(nn.Flatten(), "spec.yaml:3")
    golden(caught.value)
