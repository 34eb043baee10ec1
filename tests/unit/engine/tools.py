"""Small models and chunks of work for the estimator tests."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from robaudit.engine import registry
from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Estimator, Need
from robaudit.engine.passes import Engine
from robaudit.engine.registry import Task
from robaudit.errors import ModelError
from robaudit.levels import GAUSSIAN, LevelName, NoiseLevel
from robaudit.models import LogitModel, from_module
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.noise import Noise
from robaudit.noise.process import NoiseProcess
from robaudit.noise.uniform import Uniform
from robaudit.results import Result
from tests import levels
from tests.levels import gaussian_process

SHAPE = (2, 3, 4)
UNIFORM = "uniform"


class Counter:
    """Counts the images that pass through a network, and the sizes of the passes; a plain callable,
    which nobody copies."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.images = 0
        self.sizes = list[int]()

    def __call__(self, x: Tensor) -> Tensor:
        self.images += len(x)
        self.sizes.append(len(x))
        out: Tensor = self.network(x)
        return out


T = TypeVar("T")


def linear(
    classes: int, pixels: int = 24, *, seed: int = 0, dtype: torch.dtype = torch.float32
) -> nn.Sequential:
    """A random linear model on flattened images, by default of SHAPE."""
    layer = nn.Linear(pixels, classes)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(classes, pixels, generator=generator))
        layer.bias.copy_(torch.randn(classes, generator=generator) * 0.3)
    return nn.Sequential(nn.Flatten(), layer.to(dtype))


def weights(network: nn.Sequential) -> Tensor:
    """The weight matrix of :func:`linear`."""
    layer = network[1]
    assert isinstance(layer, nn.Linear)
    return layer.weight.detach()


def curved(classes: int = 4, *, seed: int = 0) -> nn.Sequential:
    """A random smooth two-layer network on images of SHAPE."""
    generator = torch.Generator().manual_seed(seed)
    network = nn.Sequential(nn.Flatten(), nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, classes))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
    return network


def work_on(
    network: nn.Module | Callable[[Tensor], Tensor],
    *,
    images: int = 5,
    sigma: float = 0.3,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    batch_size: int | None = None,
    first: int = 0,
    device: str = "cpu",
) -> ImageBatch:
    """A chunk of random images ``first`` to ``first + images``."""
    model: LogitModel = from_module(network, dtype=dtype, device=device)
    x = torch.rand(
        first + images, *SHAPE, generator=torch.Generator().manual_seed(7), dtype=torch.float32
    )[first:].to(device, dtype)
    with torch.no_grad():
        classes = model(x[:1]).shape[1]
    engine = Engine(model, sources(seed, dtype, device), classes, batch_size)
    ids = [str(i) for i in range(first, first + images)]
    labels = torch.zeros(images, dtype=torch.int64, device=device)
    return ImageBatch.from_images(engine, x, levels.sigma(sigma), ids=ids, labels=labels)


def chunk(
    network: nn.Module | Callable[[Tensor], Tensor] | LogitModel,
    x: Tensor,
    form: Noise | None = None,
    level: float | None = None,
    *,
    labels: Tensor | None = None,
    seed: int = 0,
    first: int = 0,
) -> ImageBatch:
    """These images under a noise (default: Gaussian) at a level, or under the noise as a whole."""
    noise = form or Gaussian()
    model = network if isinstance(network, LogitModel) else from_module(network, dtype=x.dtype)
    with torch.no_grad():
        classes = model(x[:1]).shape[1]
    engine = Engine(
        model, {"some": NoiseProcess(noise, "some", seed, model.device, x.dtype)}, classes
    )
    at = NoiseLevel("some") if level is None else NoiseLevel("some", level, noise.level_name)
    return ImageBatch.from_images(
        engine, x, at, ids=[f"image {first + i}" for i in range(len(x))], labels=labels
    )


@cache
def installed_estimators() -> dict[str, type[Estimator]]:
    """Every registered estimator, ours and others'."""
    return {name: registry.load(name) for name in registry.registered()}


class OneValue(Estimator):
    """The type of an estimator without parts."""

    @abstractmethod
    def estimate(self, batch: ImageBatch) -> Sequence[Result]: ...


def sources(seed: int, dtype: torch.dtype, device: str = "cpu") -> dict[str, NoiseProcess]:
    """Gaussian noise and uniform noise."""
    place = torch.device(device)
    return {
        GAUSSIAN: gaussian_process(seed, place, dtype),
        UNIFORM: NoiseProcess(Uniform(), UNIFORM, seed, place, dtype),
    }


def fitting(estimator: Estimator, batch: ImageBatch) -> ImageBatch:
    """The chunk, under uniform noise of the same level if the estimator cannot do with Gaussian
    noise; without a level if it needs none."""
    if Need.NOISE in estimator.needs:
        return replace(batch, at=NoiseLevel(batch.at.noise))
    return (
        batch
        if Need.BOUNDED not in estimator.needs
        else replace(batch, at=NoiseLevel(UNIFORM, batch.at.level, LevelName.EPS))
    )


def network_for(estimator: Estimator, classes: int = 4) -> nn.Sequential:
    """A smooth network, or a linear one for an estimator that works with no other."""
    try:
        estimator.check_model(from_module(curved(classes)), torch.rand(SHAPE))
    except ModelError:
        return linear(classes)
    return curved(classes)


def values(estimator: Estimator, batch: ImageBatch) -> list[tuple[Result, ...]]:
    """Every value of each image."""
    return Task(estimator, "tested").results(fitting(estimator, batch))


def build(name: str, **options: Any) -> OneValue:
    """An estimator by name, one without parts to the type checker; few samples unless told."""
    return cast(OneValue, built(installed_estimators()[name], **options))


def built(cls: type[Estimator], **options: Any) -> Estimator:
    """An estimator; few samples unless told."""
    if "samples" in cls.model_fields:
        options = {"draws": 64, **options}
    if "particles" in cls.model_fields:
        options = {"particles": 80, **options}
    if "temperatures" in cls.model_fields:
        options = {"temperatures": 20, "steps": 2, **options}
    if Need.NOISE in cls.needs:
        options = {"tolerance": 1.0, **options}
    if "restarts" in cls.model_fields:
        options = {
            "steps": 5,
            "restarts": 2,
            **({"moves": 2} if "moves" in cls.model_fields else {}),
            **options,
        }
    if "selection" in cls.model_fields:
        options = {"draws": 64, "selection": 16, **options}
    if "copies" in cls.model_fields:
        options = {"copies": 8, "verify": 100, "polish": 3, **options}
    if "directions" in cls.model_fields:
        options = {"directions": 40, **options}
    return cls.model_validate(options)


def known(value: T | None) -> T:
    """A value that is there."""
    assert value is not None
    return value
