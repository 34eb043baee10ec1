"""A result is the same, to the last bit, whatever is computed beside it: other images, estimators
and noise levels, in any cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import robaudit.demo
from robaudit.datasets import open_dataset
from robaudit.datasets.digits import DigitsSpec
from robaudit.datasets.npz import NpzSpec
from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Estimator
from robaudit.engine.passes import Engine
from robaudit.models import LogitModel, Source, from_module, load_model
from robaudit.models.architectures import digits_cnn
from robaudit.models.logits import for_noisy_passes
from robaudit.results import Result
from robaudit.spec.model import ModelSpec
from tests import levels
from tests.shared import MODELS, SHARED, card, needs_shared
from tests.unit.engine.tools import (
    SHAPE,
    build,
    curved,
    installed_estimators,
    linear,
    sources,
    values,
)
from tests.unit.methods.test_selection import spread

pytestmark = pytest.mark.bits
CPU = torch.device("cpu")
IMAGES = 6
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "logit_gaussian": [{"draws": 32}],
    "mc": [{"draws": 30}],
    "mmse": [{"draws": 6}, {"draws": 5, "pairs": False}],
    "mmse_mvs": [{"draws": 6}],
    "qnorm_path": [{"temperatures": 12, "steps": 1}],
    "radius_attack": [{"steps": 3, "restarts": 1, "polish": 3}],
    "splitting": [{"particles": 40, "moves": 3}],
    "certified_radius": [
        {"draws": 40, "selection": 12},
        {"decide": 0.05, "draws": 200, "selection": 20},
    ],
    "smoothed_attack": [{"steps": 3, "restarts": 1}],
    "radius_pgd": [
        {"norm": "l2", "steps": 8, "restarts": 2},
        {"norm": "linf", "steps": 8, "restarts": 3, "clip": True},
    ],
}
CASES = {
    f"{name} {options}" if options else name: build(name, **options)
    for name in sorted(installed_estimators())
    for options in VARIANTS.get(name, [{}])
}
LINEAR = ("moments", "radius_exact")
"""Cases for linear networks alone."""
BY_CLASS = ("logit_gaussian", "mmse", "taylor", "radius_attack")
"""Cases that choose among the classes."""
ANY = {case: estimator for case, estimator in CASES.items() if case not in LINEAR}
FIRST = [
    next(case for case in CASES if case.partition(" ")[0] == name)
    for name in sorted(installed_estimators())
    if name not in LINEAR
]


class Setting:
    """A network with its images; each has the same name in every chunk."""

    def __init__(
        self,
        model: LogitModel,
        x: Tensor,
        classes: int,
        sigma: float,
        *,
        noisy: LogitModel | None = None,
    ) -> None:
        self.model = model
        self.x = x.to(model.dtype)
        self.classes = classes
        self.sigma = sigma
        self.noisy = noisy

    def batch(
        self, index: Sequence[int], *, sigma: float | None = None, batch_size: int | None = None
    ) -> ImageBatch:
        """Those images as a chunk."""
        engine = Engine(
            self.model, sources(3, self.model.dtype), self.classes, batch_size, noisy=self.noisy
        )
        x = self.x[list(index)]
        at = levels.sigma(sigma or self.sigma)
        labels = torch.zeros(len(x), dtype=torch.int64)
        return ImageBatch.from_images(
            engine, x, at, ids=[f"image {i}" for i in index], labels=labels
        )

    def all(self, estimator: Estimator) -> list[tuple[Result, ...]]:
        """All images in one chunk."""
        return values(estimator, self.batch(range(len(self.x))))


@cache
def demo(dtype: torch.dtype = torch.float32, *, bf16: bool = False) -> Setting:
    """The embedded convolutional network."""
    network = digits_cnn()
    network.load_state_dict(load_file(Path(robaudit.demo.__path__[0]) / "digits_cnn.safetensors"))
    model = from_module(network, dtype=dtype)
    data = open_dataset(DigitsSpec(kind="digits", split="test"), base_dir=Path(), trust=False)
    x = torch.stack([data[i].pixels for i in range(IMAGES)])
    return Setting(model, x, 10, 0.4, noisy=for_noisy_passes(model, "bf16") if bf16 else None)


@cache
def many_classes() -> Setting:
    """80 classes, of which few compete; images differ in how many."""
    x = torch.rand(IMAGES, *SHAPE, generator=torch.Generator().manual_seed(7))
    return Setting(from_module(spread(curved(80), 3.0)), x, 80, 0.3)


@cache
def straight() -> Setting:
    """A linear network."""
    return Setting(
        from_module(linear(5)),
        torch.rand(IMAGES, *SHAPE, generator=torch.Generator().manual_seed(7)),
        5,
        0.3,
    )


SETTINGS = {"demo": demo, "many classes": many_classes}


def cuts(images: int, sizes: Sequence[int]) -> list[list[int]]:
    """The images in random order, cut into chunks whose sizes are these in turn."""
    order: list[int] = torch.randperm(
        images, generator=torch.Generator().manual_seed(images + sum(sizes))
    ).tolist()
    found = []
    turn = 0
    while order:
        size = sizes[turn % len(sizes)]
        found.append(order[:size])
        order = order[size:]
        turn = turn + 1
    return found


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param(((1,), (4, 2)), id="each", marks=pytest.mark.slow),
        pytest.param(((1, 3, 2),), id="some"),
    ],
)
@pytest.mark.parametrize(
    ("case", "setting"),
    [
        *((case, "demo") for case in ANY),
        *(
            pytest.param(
                case, "many classes", marks=[] if case.startswith(BY_CLASS) else pytest.mark.slow
            )
            for case in ANY
        ),
        *((case, "linear") for case in LINEAR),
    ],
)
def test_in_any_chunk(case: str, setting: str, chunks: tuple[tuple[int, ...], ...]) -> None:
    """Every image is in a chunk of another size than that of all; by default one of them is
    alone."""
    here = {**SETTINGS, "linear": straight}[setting]()
    estimator = CASES[case]
    together = here.all(estimator)
    for sizes in chunks:
        for index in cuts(len(together), sizes):
            assert values(estimator, here.batch(index)) == [together[i] for i in index], (
                f"chunk {index}"
            )


@pytest.mark.slow
@pytest.mark.parametrize("case", FIRST)
@pytest.mark.parametrize(
    "settings", [{"dtype": torch.float64}, {"bf16": True}], ids=["fp64", "bf16"]
)
def test_in_any_precision(case: str, settings: dict[str, Any]) -> None:
    here = demo(**settings)
    estimator = CASES[case]
    together = here.all(estimator)
    for index in cuts(len(together), (2, 4)):
        assert values(estimator, here.batch(index)) == [together[i] for i in index]


class RoundsOtherwise(nn.Module):
    """A network whose last bits depend on whether gradients may be asked for, as frozen graphs have
    it."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        out: Tensor = self.network(x)
        return out if torch.is_inference_mode_enabled() else out * (1 + 1e-6)


@cache
def crowd() -> tuple[Setting, dict[str, list[tuple[Result, ...]]]]:
    """All estimators on one chunk, last ones first, each after all of them at another noise
    level."""
    plain = demo()
    here = Setting(from_module(RoundsOtherwise(plain.model.network)), plain.x, 10, plain.sigma)
    batch = here.batch(range(IMAGES))
    other = here.batch(range(3), sigma=0.1)
    found = {}
    for case, estimator in reversed(ANY.items()):
        values(estimator, other)
        found[case] = values(estimator, batch)
    return here, found


@pytest.mark.slow
@pytest.mark.parametrize("case", ANY)
def test_whatever_other_estimators_and_noise_levels_there_are(case: str) -> None:
    here, together = crowd()
    estimator = CASES[case]
    assert values(estimator, here.batch(range(IMAGES))) == together[case]


@needs_shared
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_real_networks(name: str) -> None:
    about = card(name)
    path = SHARED / "models" / name / "model.torchscript.pt"
    spec = ModelSpec(path=str(path), mean=about["mean"], std=about["std"])
    model = load_model(Source(spec))
    data = open_dataset(
        NpzSpec(kind="npz", path=str(SHARED / "data" / f"{about['dataset']}.npz"), limit=IMAGES),
        base_dir=SHARED,
        trust=False,
    )
    here = Setting(
        model, torch.stack([data[i].pixels for i in range(IMAGES)]), int(about["num_classes"]), 0.15
    )
    for case, estimator in ANY.items():
        together = here.all(estimator)
        for batch_size, sizes in ((None, (1,)), (None, (4, 2)), (8, (5, 1)), (16, (6,))):
            for index in cuts(IMAGES, sizes):
                part = values(estimator, here.batch(index, batch_size=batch_size))
                assert part == [together[i] for i in index], (
                    f"{case}: batch size {batch_size}, chunk {json.dumps(index)}"
                )
