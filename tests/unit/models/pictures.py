"""A small folder of PNG and JPEG images of odd sizes by class, and what an audit makes of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from robaudit.auditing.prepare import make_model
from robaudit.datasets.open_dataset import open_dataset
from robaudit.models.pretrained import filled
from robaudit.spec.model import AuditSpec
from robaudit.spec.read import load_spec

CLASSES = ("cat", "dog", "owl")
SIZES = ((53, 67), (64, 64), (71, 40), (33, 90), (121, 47), (60, 59))  # height, width


def draw(folder: Path, classes: tuple[str, ...] = CLASSES) -> Path:
    """One image of each size, in turn a PNG and a JPEG, in folders of their classes."""
    generator = np.random.default_rng(7)
    for number, (height, width) in enumerate(SIZES):
        coarse = generator.integers(0, 256, (height // 6 + 2, width // 6 + 2, 3), dtype=np.uint8)
        place = folder / classes[number % len(classes)]
        place.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        image.save(place / f"{number}.{('png', 'jpg')[number % 2]}")
    return folder


def files(folder: Path) -> list[Path]:
    """The images in the order of the data set."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def spec_of(
    folder: Path, model: str, dataset: str = "kind: images, path: images", **settings: str
) -> AuditSpec:
    """The spec of an audit of these images, as read from a file in the folder and filled in from
    the model's files."""
    text = (
        f"model: {{{model}}}\ndataset: {{{dataset}}}\nnoise: {{sigma: 0.05}}\nestimators: "
        "[{mc: {draws: 10}}]\n"
    )
    return filled(
        load_spec(
            folder / "spec.yaml",
            text=text,
            settings=[f"{key}={value}" for key, value in settings.items()],
        )
    )


def audited(spec: AuditSpec) -> tuple[torch.Tensor, torch.Tensor, list[int | None]]:
    """Pixels, logits and labels of a spec's whole data set."""
    dataset = open_dataset(spec.dataset, base_dir=spec.base_dir, trust=False)
    samples = [dataset[index] for index in range(len(dataset))]
    model = make_model(spec, None, torch.device("cpu"), trust=False)
    pixels = torch.stack([sample.pixels for sample in samples]).float()
    with torch.inference_mode():
        return pixels, model(pixels), [sample.label for sample in samples]


def difference(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The largest difference, as a share of the largest value."""
    return float((found - wanted).abs().max() / wanted.abs().max())
