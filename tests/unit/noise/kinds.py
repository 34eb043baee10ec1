"""Every registered kind of noise, with options to try it with."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robaudit.noise.corruption import Corruption
from robaudit.noise.noise import BASE_DIR, Noise, Shape

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"
SHAPES: tuple[Shape, ...] = ((1, 8, 8), (3, 5, 7))

COLOURLESS = (
    "gaussian_blur",
    "motion_blur",
    "defocus_blur",
    "jpeg",
    "brightness",
    "contrast",
    "fog",
    "pixelate",
    "elastic",
)
"""The corruptions that grey images have, too."""
COPIES = 128
"""Images of the corrupted set."""

# Options that a kind needs, or that make another kind of it; files are made by `write_files`.
OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "gaussian_scaled": (
        {"scale": "channels.npy"},
        {"scale": "pixels.npy"},
        {"scale": "values.npy"},
    ),
    "gaussian_correlated": (
        {"length": 2.0},
        {"length": "1/2"},
        {"length": 40.0, "channels": "shared"},
    ),
    "gaussian_covariance": ({"file": "factor.npz"}, {"file": "both.npz"}),
    "uniform": ({}, {"norm": "l2"}, {"norm": "l2", "support": "sphere"}),
    "sensor": ({}, {"read_noise": 0, "bits": 12}),
    "linear": ({}, {"mean": 0.1, "std": 0.5}),
    "spatial": ({}, {"flip": False, "crop": 0}),
    "frames": ({"file": "small.npz"}, {"file": "large.npz"}),
    "corruption": tuple(
        {"name": name, "scale": scale} for name in COLOURLESS for scale in ("cifar", "imagenet")
    ),
    "corrupted_set": ({"name": "fog", "path": "set"},),
}


@cache
def kinds() -> dict[str, type[Noise]]:
    """The classes by the names that pyproject.toml registers them under: an installed copy of the
    package may be older."""
    table = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"]["robaudit.noise"]
    return {name: _imported(target) for name, target in table.items()}


def _imported(target: str) -> type[Noise]:
    module, _, name = target.partition(":")
    found: type[Noise] = getattr(import_module(module), name)
    return found


def write_files(folder: Path, shape: Shape) -> None:
    """The files of `OPTIONS` for images of a shape: random, and the same for every test."""
    random = np.random.default_rng(0)
    pixels = int(np.prod(shape))
    np.save(folder / "channels.npy", random.uniform(0.5, 1.5, shape[0]))
    np.save(folder / "pixels.npy", random.uniform(0.5, 1.5, shape[1:]).astype(np.float32))
    np.save(folder / "values.npy", random.integers(0, 3, shape))
    np.savez(folder / "factor.npz", factor=random.normal(size=(4, *shape)).reshape(4, -1).T)
    for name, side, dtype in (("small.npz", 3, np.float16), ("large.npz", 11, np.float32)):
        np.savez(
            folder / name,
            frames=random.normal(size=(5, shape[0], side, side + 1)).astype(dtype),
            brightness=[0.1, 0.4, 0.9],
            variance=random.uniform(0.5, 1.5, (shape[0], 3)),
        )
    (folder / "set").mkdir(exist_ok=True)
    np.save(
        folder / "set" / "fog.npy",
        random.integers(0, 256, (5 * COPIES, *shape[1:], shape[0]), dtype=np.uint8),
    )
    np.savez(
        folder / "both.npz",
        factor=random.normal(size=(pixels, 4)),
        diagonal=random.uniform(0.5, 1.5, pixels),
    )


def made(cls: type[Noise], folder: Path, **options: object) -> Noise:
    """A kind with options; relative paths start from the folder."""
    return cls.model_validate(options, context={BASE_DIR: folder})


def examples(folder: Path, shape: Shape) -> list[tuple[str, Noise]]:
    """All kinds, each with all its example options."""
    write_files(folder, shape)
    found = [
        (name, made(cls, folder, **options))
        for name, cls in kinds().items()
        for options in OPTIONS.get(name, ({},))
    ]
    if shape[0] == 3:  # the one corruption that needs colour
        found.append(("corruption", Corruption(name="saturate")))
    return found


def images(count: int, shape: Shape, seed: int = 1) -> Tensor:
    """Pixels in [0, 1], black and white ones among them."""
    x = torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed)) * 1.2 - 0.1
    return x.clamp_(0.0, 1.0)


def normal(count: int, shape: tuple[int, ...], seed: int = 2) -> Tensor:
    """Standard normal variables, float32."""
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


def some_level(form: Noise) -> float:
    """A level in the middle of the range, on a logarithmic scale."""
    found = float((form.least * form.most) ** 0.5)
    return float(round(found)) if form.whole else found
