"""p_robust of shared networks that see images through a simulated camera, beside p_robust under
the noise that was measured.

The images are the scenes. The clean image is what the camera makes of a scene without noise, for
the camera as for the measured noises, so the difference is that of the noises alone.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import robaudit
from tests import scenes
from tests.cameras import Camera, Floats
from tests.research.camera.cases import CASES, EXPOSURE, SIDE
from tests.research.camera.measuring import Measure
from tests.research.camera.store import Store
from tests.research.camera.study import suffix
from tests.shared import SHARED, card

NETWORKS = ("cifar10_resnet20", "mnist_conv_small_nat")
SEEN_BY = ("gaussian", "correlated", "sensor", "phone, JPEG 95", "phone, JPEG 50")
"""The cameras of this part."""
SHOTS = 50
AIM = 0.01
FEWER_PHOTONS = 10
"""A camera in little light: so weak is the noise of the other cameras that nothing flips."""


@dataclass(frozen=True, slots=True)
class Robustness:
    """The mean p_robust of one network behind one camera.

    Attributes:
        network, case: the names of both.
        camera: under the simulated camera.
        error: its standard error, over the draws.
        noises: under each measured noise.
    """

    network: str
    case: str
    camera: float
    error: float
    noises: Mapping[str, float]

    @property
    def worst(self) -> float:
        """The largest difference from the camera."""
        return max(abs(value - self.camera) for value in self.noises.values())


@dataclass(frozen=True, slots=True)
class Subject:
    """A shared network and its test images.

    Attributes:
        network: from normalised pixels to logits.
        mean, std: of the normalisation.
        images: light, (images, height, width, channels) or (images, height, width).
        labels: of the images.
    """

    network: torch.nn.Module
    mean: tuple[float, ...]
    std: tuple[float, ...]
    images: Floats
    labels: NDArray[np.int64]

    @property
    def grey(self) -> bool:
        """Whether images have one channel."""
        return self.images.ndim == 3

    def predicted(self, values: Floats) -> Tensor:
        """The predictions for values in [0, 1], shaped as the images are."""
        pixels = torch.from_numpy(_planes(values)).float()
        mean = torch.tensor(self.mean)[:, None, None]
        std = torch.tensor(self.std)[:, None, None]
        with torch.inference_mode():
            logits: Tensor = self.network((pixels - mean) / std)
        return logits.argmax(1)


def subject(name: str, images: int) -> Subject:
    """The first test images and the network."""
    about = card(name)
    folder = SHARED / "models" / name
    with np.load(SHARED / "data" / f"{about['dataset']}.npz") as arrays:
        pixels = arrays["images"][:images]
        labels = arrays["labels"][:images].astype(np.int64)
    if about["input_shape"][0] == 1:
        pixels = pixels.reshape(len(pixels), *about["input_shape"][1:])
    elif pixels.shape[1] == 3:
        pixels = pixels.transpose(0, 2, 3, 1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit.load` is deprecated", FutureWarning)
        network = torch.jit.load(str(folder / "model.torchscript.pt"))
    return Subject(
        network.eval(), tuple(about["mean"]), tuple(about["std"]), pixels / 255.0, labels
    )


def camera_of(case: str, *, grey: bool) -> Camera:
    """The camera of a case in little light; without a Bayer pattern where the images are grey."""
    camera = CASES[case].camera
    photons = None if camera.photons is None else camera.photons / FEWER_PHOTONS
    sigma = np.asarray(camera.sigma) * np.sqrt(FEWER_PHOTONS)
    return replace(
        camera, photons=photons, sigma=float(sigma), bayer=camera.bayer and not grey, bits=8
    )


def results(
    network: str, images: int, draws: int, measure: Measure, store: Store
) -> Iterator[Robustness]:
    """p_robust of one network behind every camera; those that the store has are not made again."""
    given: Subject | None = None
    for case in SEEN_BY:
        key = f"network {network}, {case}, {images} images, {draws} draws"
        if key not in store.found:
            given = given or subject(network, images)
            found = _robustness(network, case, given, draws, measure)
            store.add(key, asdict(found))
        yield Robustness(**store.found[key])


def _robustness(name: str, case: str, given: Subject, draws: int, measure: Measure) -> Robustness:
    """The camera measured on a still scene, then the network under what was measured."""
    camera = camera_of(case, grey=given.grey)
    shares = under_camera(given, camera, draws)
    error = np.sqrt(np.sum(shares * (1 - shares) / draws)) / len(shares)
    with tempfile.TemporaryDirectory() as folder:
        shots = Path(folder) / "shots"
        scene = EXPOSURE * scenes.texture(SIDE, SIDE, grey=given.grey)
        camera.write(shots, scene, SHOTS, seed=1, suffix=suffix(camera))
        noises = measure(shots).noises or {}
        # while the folder exists: frames are read from it
        values = {kind: under_noise(given, camera, noise, draws) for kind, noise in noises.items()}
    return Robustness(name, case, float(shares.mean()), float(error), values)


def clean(given: Subject, camera: Camera) -> Floats:
    """The images as the camera gives them without noise."""
    return np.stack([camera.noiseless(image) / camera.largest for image in given.images])


def under_camera(given: Subject, camera: Camera, draws: int) -> Floats:
    """The share of shots of each image whose prediction is that of the clean image (images,)."""
    expected = given.predicted(clean(given, camera))
    agree = np.zeros(len(given.images))
    for draw in range(draws):
        shots = [
            camera.shot(image, draw, seed) / camera.largest
            for seed, image in enumerate(given.images)
        ]
        agree += (given.predicted(np.stack(shots)) == expected).numpy()
    return agree / draws


def under_noise(given: Subject, camera: Camera, noise: Mapping[str, Any], draws: int) -> float:
    """The mean p_robust of the clean images under a noise of a spec."""
    pixels = torch.from_numpy(_planes(clean(given, camera))).float()
    with tempfile.TemporaryDirectory() as folder:
        run = robaudit.audit(
            given.network,
            (pixels, torch.from_numpy(given.labels)),
            noise=noise,
            mean=list(given.mean),
            std=list(given.std),
            estimators={"mc": {"draws": draws}},
            out=Path(folder) / "run",
            progress=False,
        )
        return float(np.mean([row.value for row in run.rows]))


def _planes(values: Floats) -> Floats:
    """(images, channels, height, width)."""
    return values[:, None] if values.ndim == 3 else values.transpose(0, 3, 1, 2)
