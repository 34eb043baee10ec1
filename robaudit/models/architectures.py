"""Networks by name.

The names are ``robaudit:NAME`` (built-in), ``torchvision:NAME``, ``timm:NAME`` and
``package.module:function``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from robaudit.errors import ModelError, did_you_mean, needs_extra
from robaudit.models.formats import Source
from robaudit.models.python_callable import call_target
from robaudit.models.size import build_on_trial


def digits_cnn(channels: Sequence[int] = (16, 48), num_classes: int = 10) -> nn.Sequential:
    """A small network for 1 x 8 x 8 digits, with about 15,000 parameters.

    It has two 3 x 3 convolutions, one pooling and one linear layer.
    """
    first, second = channels
    return nn.Sequential(
        nn.Conv2d(1, first, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(first, second, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(second * 4 * 4, num_classes),  # 8 x 8 pixels after the pooling are 4 x 4
    )


def mlp(sizes: Sequence[int] = (784, 100, 100, 10)) -> nn.Sequential:
    """A ReLU network of dense layers.

    Args:
        sizes: the numbers of pixels, of values in each hidden layer, and of classes.
    """
    if len(sizes) < 2:
        raise ValueError("sizes needs at least two numbers: pixels and classes")
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])  # no ReLU after the logits


class Linear(nn.Module):
    """Logistic regression on the flat pixels: logits = W x + b."""

    def __init__(self, in_features: int = 784, num_classes: int = 10) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map images (n, c, h, w) to logits (n, classes)."""
        logits: torch.Tensor = self.linear(images.flatten(1))
        return logits


def small_cnn(
    *,
    in_channels: int = 1,
    image_size: int = 28,
    channels: Sequence[int] = (16, 32),
    kernel: int = 4,
    stride: int = 2,
    padding: int = 1,
    hidden: int = 100,
    num_classes: int = 10,
) -> nn.Sequential:
    """Two strided convolutions and two linear layers, without pooling.

    The layers with weights are 0, 2, 5 and 7.
    """
    first, second = channels
    # Each convolution leaves floor((side + 2 padding - kernel) / stride) + 1 pixels along a side.
    side = image_size
    for _ in channels:
        side = (side + 2 * padding - kernel) // stride + 1
    return nn.Sequential(
        nn.Conv2d(in_channels, first, kernel, stride, padding),
        nn.ReLU(),
        nn.Conv2d(first, second, kernel, stride, padding),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(second * side * side, hidden),
        nn.ReLU(),
        nn.Linear(hidden, num_classes),
    )


class ShallowCnn(nn.Module):
    """Two 5 x 5 convolutions with batch norm and max pooling, then two linear layers."""

    def __init__(self, in_channels: int = 1, image_size: int = 28, num_classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, 16, 5, padding=2)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 5, padding=2)
        self.bn2 = nn.BatchNorm2d(32)
        self.fc1 = nn.Linear(32 * (image_size // 4) ** 2, 128)
        self.fc2 = nn.Linear(128, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map images (n, c, h, w) to logits (n, classes)."""
        hidden = F.relu(self.bn1(self.conv1(images)))
        hidden = F.max_pool2d(hidden, 2)
        hidden = F.relu(self.bn2(self.conv2(hidden)))
        hidden = F.max_pool2d(hidden, 2)
        hidden = F.relu(self.fc1(hidden.flatten(1)))
        logits: torch.Tensor = self.fc2(hidden)
        return logits


class _Block(nn.Module):
    """Two 3 x 3 convolutions and a shortcut without parameters.

    Where the size changes, the shortcut has every second pixel, and zeros for the new channels.

    Source: He et al. 2016, section 3.3, option A.
    """

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.stride = stride
        self.extra = (outside - inside) // 2  # channels of zeros, before and after the old ones

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(self.bn1(self.conv1(images)))
        hidden = self.bn2(self.conv2(hidden))
        shortcut = images
        if self.stride != 1 or self.extra:
            every_second = images[:, :, :: self.stride, :: self.stride]
            # The last axis comes first here: nothing for width and height.
            shortcut = F.pad(every_second, (0, 0, 0, 0, self.extra, self.extra))
        return F.relu(hidden + shortcut)


class CifarResnet(nn.Module):
    """The ResNet for 32 x 32 images, with shortcuts of option A.

    Args:
        depth: 6 n + 2, for example 20, 32, 44, 56 or 110.
        num_classes: the number of logits.
        in_channels: of the images.

    Source: He et al. 2016, "Deep residual learning for image recognition", section 4.2.
    """

    def __init__(self, depth: int = 20, num_classes: int = 10, in_channels: int = 3) -> None:
        super().__init__()
        if depth < 8 or depth % 6 != 2:
            raise ValueError(f"depth is {depth}; it must be 6 n + 2, for example 20, 32 or 56")
        self.conv1 = nn.Conv2d(in_channels, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        blocks = (depth - 2) // 6  # in each of three stages, with two convolutions each
        self.layer1 = self._stage(16, 16, 1, blocks)
        self.layer2 = self._stage(16, 32, 2, blocks)
        self.layer3 = self._stage(32, 64, 2, blocks)
        self.linear = nn.Linear(64, num_classes)

    @staticmethod
    def _stage(inside: int, outside: int, stride: int, blocks: int) -> nn.Sequential:
        return nn.Sequential(
            _Block(inside, outside, stride),
            *(_Block(outside, outside, 1) for _ in range(blocks - 1)),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map images (n, c, h, w) to logits (n, classes)."""
        hidden = F.relu(self.bn1(self.conv1(images)))
        hidden = self.layer3(self.layer2(self.layer1(hidden)))
        logits: torch.Tensor = self.linear(hidden.mean(dim=(2, 3)))
        return logits


FAMILIES = ("robaudit:", "torchvision:", "timm:", "transformers:")
"""The prefixes of network names that are not the user's own code."""
ARCHITECTURES: dict[str, Callable[..., nn.Module]] = {
    "cifar_resnet": CifarResnet,
    "digits_cnn": digits_cnn,
    "linear": Linear,
    "mlp": mlp,
    "shallow_cnn": ShallowCnn,
    "small_cnn": small_cnn,
}
# Options of torchvision's and timm's builders that read files or download weights.
_FETCHING = (
    "weights",
    "weights_backbone",
    "pretrained",
    "checkpoint_path",
    "pretrained_cfg",
    "pretrained_cfg_overlay",
    "cache_dir",
)


def build_architecture(source: Source, tensors: Mapping[str, torch.Tensor] | None) -> nn.Module:
    """The network that ``architecture`` names, with fresh weights and in eval mode.

    The global random state does not change.

    Args:
        source: where the model comes from.
        tensors: its weights; a clearly larger network is not built (trusted code is not limited).
            None: not known yet.

    Raises:
        ModelError: the name is unknown, the options do not fit, or the code is not trusted.
    """
    name = source.spec.architecture or ""
    options = source.spec.architecture_options
    where = f"architecture {name}"
    family, colon, short = name.partition(":")
    builders = {"robaudit": _builtin, "torchvision": _torchvision, "timm": _timm}
    builder_of = builders.get(family) if colon else None
    network: object
    # Building a network draws random weights.
    with torch.random.fork_rng(devices=[]):
        if builder_of is None:
            network = call_target(source)
        else:
            builder = builder_of(short, where)
            for option in _FETCHING:
                if options.get(option):
                    what = f"{option} would read or download other weights"
                    raise ModelError(where, what, "leave it out: the weights come from model.path")
            try:
                build = partial(builder, **options)
                if tensors is not None:
                    build_on_trial(tensors, source.where, name, options, build)
                network = build()
            except ModelError:
                raise
            except Exception as error:
                raise ModelError(
                    where, f"its options do not fit: {error}", "see architecture_options"
                ) from error
    if not isinstance(network, nn.Module):
        raise ModelError(
            name,
            f"returned {type(network).__name__}",
            "it must return a torch.nn.Module to load the weights into",
        )
    return network.eval()


def _builtin(short: str, where: str) -> Callable[..., nn.Module]:
    if short not in ARCHITECTURES:
        raise ModelError(where, "there is no such network", did_you_mean(short, ARCHITECTURES))
    return ARCHITECTURES[short]


def _torchvision(short: str, where: str) -> Callable[..., nn.Module]:
    from torchvision import models

    model, dot, tag = short.partition(".")
    if model not in models.list_models():
        raise ModelError(
            where, "there is no such network", did_you_mean(short, models.list_models())
        )
    tags = models.get_model_weights(model).__members__ if dot else ()
    if dot and tag not in tags:
        raise ModelError(
            where,
            "torchvision has no such weights",
            did_you_mean(short, [f"{model}.{name}" for name in tags]),
        )
    builder: Callable[..., nn.Module] = models.get_model_builder(model)
    if model in ("googlenet", "inception_v3"):
        # Their initialisation is slow, warns, and is overwritten by the loaded weights.
        return partial(builder, init_weights=False)
    return builder


def _timm(short: str, where: str) -> Callable[..., nn.Module]:
    try:
        import timm
    except ImportError as error:
        raise needs_extra(where, "timm", "timm") from error

    known = timm.list_models()
    model, _, tag = short.partition(".")
    if model not in known:
        raise ModelError(where, "timm has no such model", did_you_mean(short, known))
    if tag and short not in timm.list_pretrained():
        raise ModelError(
            where,
            "timm has no such weights",
            did_you_mean(short, timm.list_pretrained(f"{model}.*")),
        )
    return partial(timm.create_model, short)
