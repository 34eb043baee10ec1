"""The Lipschitz bound of whole networks: never exceeded, exact where it can be, and refused by name
where there is none."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from robaudit.errors import ModelError
from robaudit.methods.certificates.network_bounds import Lipschitz, lipschitz_bound
from robaudit.models import LogitModel, from_module
from robaudit.models.architectures import CifarResnet, ShallowCnn, digits_cnn, mlp, small_cnn
from tests.golden import Golden
from tests.unit.models.conftest import load

SHAPE = (2, 6, 6)
IMAGE = torch.full(SHAPE, 0.5)
NORMS = ("l2", "linf")


def seeded(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = make()
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):
                for tensor in (module.running_var, module.weight):
                    assert tensor is not None
                    tensor.data.uniform_(0.3, 2.0)
                module.bias.data.normal_()
                assert module.running_mean is not None
                module.running_mean.data.normal_()
        return network.eval()


class Then(nn.Module):
    """A function of the pixels, and a linear layer behind it."""

    def __init__(self, function: Callable[[Tensor], Tensor], classes: int = 4) -> None:
        super().__init__()
        self.function = function
        self.head = nn.Linear(function(torch.rand(1, *SHAPE)).flatten(1).shape[1], classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.function(x).flatten(1))
        return out


def assert_holds(model: LogitModel, bound: Lipschitz, images: int = 40) -> None:
    """No difference of logits of near or far images exceeds the bound, in either norm."""
    generator = torch.Generator().manual_seed(1)
    for scale in (1e-2, 1.0, 10.0):
        a = (torch.randn(images, *SHAPE, generator=generator) * scale).double()
        b = a + torch.randn(images, *SHAPE, generator=generator).double() * scale
        gradient = _steepest(model, a)
        for other in (b, a + 1e-3 * scale * gradient, a + 1e-3 * scale * gradient.sign()):
            with torch.no_grad():
                moved = model(a) - model(other)
            apart = (a - other).flatten(1)
            change = (moved[:, :, None] - moved[:, None]).abs()
            for norm, distance in (("l2", apart.norm(dim=1)), ("linf", apart.abs().amax(1))):
                allowed = bound.margins[norm] * distance[:, None, None]
                assert (change <= allowed * (1 + 1e-9) + 1e-9 * scale).all(), norm
                size = moved.norm(dim=1) if norm == "l2" else moved.abs().amax(1)
                assert (
                    size <= bound.constant[norm] * distance * (1 + 1e-9) + 1e-9 * scale
                ).all(), norm


def _steepest(model: LogitModel, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_(True)
    logits = model(x)
    (found,) = torch.autograd.grad((logits[:, 0] - logits[:, 1]).sum(), x)
    length: Tensor = found.flatten(1).norm(dim=1)
    return found / length.clamp_min(1e-12)[:, None, None, None]


def residual(x: Tensor) -> Tensor:
    return x + 0.5 * F.relu(x) - F.avg_pool2d(x, 3, 1, 1)


class Block(nn.Module):
    """Two branches with a batch norm each."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, 2, 1, bias=False)
        self.bn = nn.BatchNorm2d(3)
        self.short = nn.Conv2d(2, 3, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)) + self.short(x))


def _without_gradient(mode: Callable[[], Any], x: Tensor) -> Tensor:
    with mode():
        return 100 * x


class Relu(torch.autograd.Function):
    """Not what it is called."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return 100 * x

    @staticmethod
    def backward(_ctx: Any, slope: Tensor) -> Tensor:
        return slope


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "in place": lambda x: F.relu_(x * 2),
    "leaky": lambda x: F.leaky_relu(x, 2.0),
    "elu": lambda x: F.elu(x, 1.5),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 0.5),
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softplus": lambda x: F.softplus(x, 3.0),
    "logsigmoid": F.logsigmoid,
    "hardtanh": F.hardtanh,
    "relu6": F.relu6,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "softshrink": F.softshrink,
    "abs": torch.abs,
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "clamp by a wider tensor": lambda x: x[:, :1].clamp(
        min=torch.linspace(-1, 1, 5).to(x).reshape(1, 5, 1, 1)
    ),
    "sin": torch.sin,
    "max pool": lambda x: F.max_pool2d(x, 3, 2, 1),
    "dilated max pool": lambda x: F.max_pool2d(x, 2, 1, 0, 2),
    "average pool": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "average pool, rectangular": lambda x: F.avg_pool2d(x, (2, 3)),
    "adaptive average": lambda x: F.adaptive_avg_pool2d(x, (4, 3)),
    "adaptive max": lambda x: F.adaptive_max_pool2d(x, 4),
    "global average": lambda x: x.mean((2, 3)),
    "sum": lambda x: x.sum(2),
    "maxout": lambda x: x.max(1).values,
    "group sort": lambda x: x.flatten(1).view(len(x), -1, 2).sort(2).values,
    "larger of two": lambda x: torch.maximum(x, 0.5 * x.flip(3)),
    "logsumexp": lambda x: x.logsumexp(1),
    "softmax": lambda x: x.softmax(1),
    "log-softmax": lambda x: x.log_softmax(1),
    "residual": residual,
    "twice": lambda x: x + x,
    "difference": lambda x: 3 - torch.sub(x, x.roll(1, 2), alpha=0.5),
    "broadcast sum": lambda x: x[:, :1] + torch.zeros(1, 3, 1, 1),
    "broadcast product": lambda x: (
        x.mean((2, 3), keepdim=True) * torch.arange(18.0).reshape(1, 2, 3, 3).double().to(x.dtype)
    ),
    "sum of branches of other shapes": lambda x: x + x.mean((2, 3), keepdim=True),
    "joined": lambda x: torch.cat([x, F.relu(x), -x[:, :1]], 1),
    "stacked": lambda x: torch.stack([x, 2 * x], 1),
    "in pieces": lambda x: torch.cat([part * (i + 1) for i, part in enumerate(x.chunk(2, 1))], 1),
    "in uneven pieces": lambda x: torch.split(x.flatten(1), [1, 71], 1)[1],
    "unbound": lambda x: 2 * x.unbind(1)[1],
    "with zeros of its shape": lambda x: torch.cat(
        [x, torch.zeros_like(x), x.new_ones(x.shape)], 1
    ),
    "padded": lambda x: F.pad(x, (1, 2, 0, 1)),
    "reflected": lambda x: F.pad(x, (2, 2, 1, 1), mode="reflect"),
    "replicated": lambda x: F.pad(x, (2, 2, 1, 1), mode="replicate"),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "bilinear": lambda x: F.interpolate(x, size=(9, 5), mode="bilinear"),
    "windows": lambda x: x.unfold(2, 3, 2),
    "unfolded": lambda x: F.unfold(x, 3, padding=1),
    "shuffled": lambda x: F.pixel_shuffle(x.reshape(len(x), 8, 3, 3), 2),
    "permuted": lambda x: x.permute(0, 3, 1, 2).flip(1)[:, 1:],
    "chosen": lambda x: x[:, [0, 1, 1, 1]],
    "expanded": lambda x: x[:, :, None].expand(-1, -1, 3, -1, -1),
    "divided": lambda x: (x - 0.3) / torch.tensor([0.5, 0.2]).to(x).reshape(1, 2, 1, 1),
    "product from the right": lambda x: x @ torch.arange(12.0).reshape(6, 2).to(x),
    "product from the left": lambda x: torch.arange(12.0).reshape(2, 6).to(x) @ x,
    "matrix and vector": lambda x: (x.reshape(-1, 6) @ torch.arange(6.0).to(x)).reshape(len(x), -1),
    "rows of one dimension": lambda x: F.max_pool1d(
        F.conv1d(x.flatten(2), torch.ones(2, 1, 5).to(x), groups=2), 3
    ),
    "without gradient": lambda x: (
        x * 0.1 + _without_gradient(torch.no_grad, x) + x.detach() + x.data
    ),
    "in inference mode": lambda x: x * 0.1 + _without_gradient(torch.inference_mode, x).clone(),
    "with a gradient of its own": Relu.apply,
    "transposed": lambda x: F.conv_transpose2d(
        x, torch.arange(-12.0, 24.0).reshape(2, 2, 3, 3).to(x), stride=2, padding=1
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_pair_of_images_exceeds_the_bound(name: str) -> None:
    model = from_module(
        seeded(lambda: Then(FUNCTIONS[name])), mean=[0.1, 0.2], std=[0.5, 0.25], dtype=torch.float64
    )
    assert_holds(model, lipschitz_bound(model, IMAGE))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(72, 4)),
    "dense": lambda: mlp((72, 20, 10, 4)),
    "convolutions": lambda: small_cnn(
        in_channels=2, image_size=6, channels=(3, 4), kernel=3, stride=2, hidden=8, num_classes=4
    ),
    "batch norm and max pooling": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3, 1, 1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 4),
    ),
    "batch norm behind a transposed convolution": lambda: nn.Sequential(
        nn.ConvTranspose2d(2, 4, 3, 2, 1, groups=2),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ),
    "batch norm of features": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(72, 9), nn.BatchNorm1d(9), nn.PReLU(), nn.Linear(9, 4)
    ),
    "batch norm at the end": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(72, 4), nn.BatchNorm1d(4)
    ),
    "grouped and dilated": lambda: nn.Sequential(
        nn.Conv2d(2, 6, 3, 1, 2, dilation=2, groups=2),
        nn.Tanh(),
        nn.Conv2d(6, 4, (3, 2)),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 4),
    ),
    "two branches": lambda: nn.Sequential(Block(), nn.Flatten(), nn.Linear(27, 4)),
    "log-softmax": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(72, 9), nn.ReLU(), nn.Linear(9, 4), nn.LogSoftmax(1)
    ),
    "one logit": lambda: nn.Sequential(nn.Flatten(), nn.Linear(72, 5), nn.ReLU(), nn.Linear(5, 1)),
    "residual network": lambda: CifarResnet(8, 4, 2),
    "dropout and identity": lambda: nn.Sequential(
        nn.Flatten(), nn.Dropout(), nn.Identity(), nn.Linear(72, 4)
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str) -> None:
    model = from_module(seeded(NETWORKS[name]), std=[0.5, 0.25], dtype=torch.float64)
    bound = lipschitz_bound(model, IMAGE)
    assert_holds(model, bound)
    other = ~torch.eye(len(bound.margins["l2"]), dtype=torch.bool)
    if name != "log-softmax":
        assert (
            bound.margins["l2"][other] <= math.sqrt(2) * bound.constant["l2"] * (1 + 1e-9)
        ).all()
        assert (bound.margins["linf"][other] <= 2 * bound.constant["linf"] * (1 + 1e-9)).all()
    assert all((bound.margins[norm] == bound.margins[norm].T).all() for norm in NORMS)
    assert not bound.margins["l2"][~other].any()


def weights_of(network: nn.Module) -> list[Tensor]:
    return [p.detach().double() for p in network.parameters() if p.dim() == 2]


@pytest.mark.parametrize("name", ["linear", "dropout and identity"])
def test_a_linear_network_is_exact(name: str) -> None:
    """Its margins are those of w_c - w_j: in l2 and, by their l1 norm, in linf."""
    network = seeded(NETWORKS[name])
    (w,) = weights_of(network)
    bound = lipschitz_bound(from_module(network, std=[0.5]), IMAGE)
    apart = 2 * (w[:, None] - w)
    torch.testing.assert_close(bound.margins["l2"], apart.norm(dim=2), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(bound.margins["linf"], apart.abs().sum(2), rtol=1e-9, atol=1e-9)
    assert (bound.margins["l2"] >= apart.norm(dim=2) * (1 - 1e-15)).all()


def test_a_dense_network_has_the_product_of_the_norms() -> None:
    network = seeded(NETWORKS["dense"])
    weights = weights_of(network)
    model = from_module(network, std=[0.25])
    bound = lipschitz_bound(model, IMAGE)
    product = 4 * math.prod(float(torch.linalg.svdvals(w)[0]) for w in weights)
    assert product * (1 - 1e-12) <= bound.constant["l2"] <= product * (1 + 1e-6)
    before = product / float(torch.linalg.svdvals(weights[-1])[0])
    apart = (weights[-1][:, None] - weights[-1]).norm(dim=2) * before
    torch.testing.assert_close(bound.margins["l2"], apart, rtol=1e-9, atol=1e-12)
    assert not bound.declared


def test_a_batch_norm_is_folded_into_its_convolution() -> None:
    """Channels of norm 1, 1 and scales 10, .1: the product of the norms would be near 10 sqrt 2,
    the folded one is 10."""
    convolution = nn.Conv2d(2, 2, 1, bias=False)
    norm = nn.BatchNorm2d(2, eps=2**-20)
    norm.running_var = torch.full((2,), 1 - 2**-20)
    convolution.weight.data = torch.tensor([[1.0, 0.0], [0.6, 0.8]]).reshape(2, 2, 1, 1)
    norm.weight.data = torch.tensor([10.0, 0.1])
    head = nn.Sequential(convolution, norm, nn.ReLU(), nn.Flatten(), nn.Linear(72, 2))
    found = lipschitz_bound(from_module(head.eval()), IMAGE).constant["l2"]
    folded = torch.tensor([[10.0, 0.0], [0.06, 0.08]], dtype=torch.float64)
    (last,) = weights_of(head)
    assert found == pytest.approx(
        float(torch.linalg.svdvals(folded)[0] * torch.linalg.svdvals(last)[0]), rel=1e-6
    )


class Attention(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(2)
        return (rows @ rows.mT).softmax(2) @ rows


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * x.detach().mean().item(),
        lambda x: x if x.mean() > 0 else -x,
        lambda x: x * len((x > 0.5).nonzero()),
        lambda x: x * 0.1 + torch.from_numpy(x.detach().numpy() * 100),
        lambda x: x * 0.1 + torch.tensor(x.tolist()).to(x),
        lambda x: x + _copied(torch.zeros_like(x), x),
        lambda x: _changed(x, torch.ones(2, 6, 6)),
    ],
)
def test_what_the_operations_do_not_show(
    function: Callable[[Tensor], Tensor], golden: Golden
) -> None:
    model = from_module(Then(function).eval())
    with pytest.raises(ModelError) as error:
        lipschitz_bound(model, IMAGE)
    golden(error.value)


def _written_into(x: Tensor) -> Tensor:
    x[:, 0].mul_(2)
    return x


def _copied(into: Tensor, x: Tensor) -> Tensor:
    into[:, 0] = x[:, 1]
    return into


def _changed(x: Tensor, factor: Tensor) -> Tensor:
    y = x * factor
    factor += 1
    return y


@pytest.mark.parametrize(
    "function",
    [
        nn.LayerNorm(6),
        nn.InstanceNorm2d(2),
        Attention(),
        nn.Softsign(),
        lambda x: x + x.round(),
        lambda x: torch.div(x, 0.1, rounding_mode="floor"),
        lambda x: x % 0.5,
        lambda x: torch.ones_like(x) / (1 + x.abs()),
        lambda x: _written_into(x.clone()),
        lambda x: x * (x > 0),
        lambda x: x / x.detach().norm(),
        lambda x: x.gather(3, x.argsort(3)),
        lambda x: F.conv2d(torch.ones(1, 2, 9, 9), x),
        lambda x: F.softplus(x, 1.0, 0.0),
        lambda x: x.half().to(x),
    ],
)
def test_what_has_no_bound_is_named(function: Callable[[Tensor], Tensor], golden: Golden) -> None:
    model = from_module(Then(function).eval(), name="model.pt2")
    with pytest.raises(ModelError) as error:
        lipschitz_bound(model, IMAGE)
    golden(error.value)


def test_pixels_that_a_script_takes_for_numbers(tmp_path: Path, golden: Golden) -> None:
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(72, 4)

        def forward(self, x: Tensor) -> Tensor:
            numbers: list[float] = x.flatten().tolist()
            out: Tensor = self.head(x.flatten(1)) + 100 * torch.tensor(numbers).sum()
            return out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(seeded(Listed)), tmp_path / "model.pt")
    with pytest.raises(ModelError) as caught:
        lipschitz_bound(load(tmp_path / "model.pt", trust=True), IMAGE)
    golden(caught.value)


def test_a_format_whose_operations_cannot_be_seen(golden: Golden) -> None:
    model = from_module(nn.Sequential(nn.Flatten(), nn.Linear(72, 4)))
    object.__setattr__(model.info, "differentiable", False)
    with pytest.raises(ModelError) as caught:
        lipschitz_bound(model, IMAGE)
    golden(caught.value)


def test_constant_logits(golden: Golden) -> None:
    model = from_module(lambda x: torch.zeros(len(x), 3))
    with pytest.raises(ModelError) as caught:
        lipschitz_bound(model, IMAGE)
    golden(caught.value)


def test_declared_constants() -> None:
    found = Lipschitz.from_declared({"l2": 2.0}, 3, 100)
    other = ~torch.eye(3, dtype=torch.bool)
    assert found.margins["l2"][other].tolist() == pytest.approx([2 * math.sqrt(2)] * 6)
    assert found.margins["linf"][other].tolist() == pytest.approx([20 * math.sqrt(2)] * 6)
    assert found.constant == pytest.approx({"l2": 2.0, "linf": 20.0})
    both = Lipschitz.from_declared({"l2": 2.0, "linf": 3.0}, 3, 100)
    assert both.margins["linf"][other].tolist() == pytest.approx([6.0] * 6)
    only = Lipschitz.from_declared({"linf": 3.0}, 4, 100)
    assert float(only.margins["l2"][0, 1]) == pytest.approx(6.0)
    assert only.constant == pytest.approx({"l2": 6.0, "linf": 3.0})
    assert found.declared
    assert float(found.of_loss("l2", torch.tensor([0, 2]))[1]) == pytest.approx(2 * math.sqrt(2))


def files_of(network: nn.Module, folder: Path, shape: tuple[int, ...]) -> dict[str, Path]:
    """The network as TorchScript and .pt2."""
    found = {"torchscript": folder / "model.pt", "pt2": folder / "model.pt2"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(network, torch.rand(2, *shape)).save(str(found["torchscript"]))
        batch = torch.export.Dim("batch", min=2)
        torch.export.save(
            torch.export.export(network, (torch.rand(4, *shape),), dynamic_shapes=({0: batch},)),
            found["pt2"],
        )
    return found


@pytest.mark.parametrize("make", [digits_cnn, lambda: ShallowCnn(1, 8)])
def test_all_formats_of_a_network_have_the_same_bound(
    make: Callable[[], nn.Module], tmp_path: Path
) -> None:
    network = seeded(make)
    image = torch.rand(1, 8, 8)
    expected = lipschitz_bound(from_module(network, std=[0.5]), image)
    save_file(network.state_dict(), tmp_path / "model.safetensors")
    name = "digits_cnn" if isinstance(network, nn.Sequential) else "shallow_cnn"
    options = {} if isinstance(network, nn.Sequential) else {"image_size": 8}
    models = [load(path, std=[0.5]) for path in files_of(network, tmp_path, (1, 8, 8)).values()]
    models.append(
        load(
            tmp_path / "model.safetensors",
            std=[0.5],
            architecture=f"robaudit:{name}",
            architecture_options=options,
        )
    )
    for model in models:
        found = lipschitz_bound(model, image)
        assert found.constant == pytest.approx(expected.constant, rel=1e-12)
        for norm in NORMS:
            torch.testing.assert_close(
                found.margins[norm], expected.margins[norm], rtol=1e-12, atol=0
            )
