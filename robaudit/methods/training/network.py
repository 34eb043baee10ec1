"""The parts of a training: a network with fresh weights, an objective with its options, and images
in memory."""

from __future__ import annotations

import hashlib

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from robaudit.datasets.dataset import Dataset
from robaudit.datasets.open_dataset import open_dataset
from robaudit.errors import DataError, ModelError
from robaudit.methods.training.orthogonal import orthogonalise
from robaudit.methods.training.spec import TrainingSpec
from robaudit.methods.training.training_objective import Objective
from robaudit.models.architectures import build_architecture
from robaudit.models.formats import Source
from robaudit.plugins import OBJECTIVES, blaming, load_class
from robaudit.progress import Listener
from robaudit.spec.class_names import BASE_DIR
from robaudit.spec.model import BaseDatasetSpec, ModelSpec
from robaudit.spec.validation_errors import explain


class Normalised(nn.Module):
    """A network that takes pixels in [0, 1] and normalises them first."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.network = network
        # Not persistent: the weights' file is of the bare network, and the audit spec has them.
        self.register_buffer("mean", mean.view(-1, 1, 1), persistent=False)
        self.register_buffer("std", std.view(-1, 1, 1), persistent=False)

    def normalise(self, images: Tensor) -> Tensor:
        """(x - mean) / std."""
        return (images - self.mean) / self.std

    def forward(self, images: Tensor) -> Tensor:
        """The logits."""
        logits: Tensor = self.network(self.normalise(images))
        return logits


def model_section(spec: TrainingSpec, path: str | None = None) -> ModelSpec:
    """The ``model`` section of an audit of the trained network.

    Args:
        spec: the training.
        path: the file of the weights.
    """
    keys = spec.network.model_dump(exclude={"orthogonal"})
    given = {key: value for key, value in keys.items() if value}
    return ModelSpec(path=path, **given)


def build_network(spec: TrainingSpec, *, trust: bool) -> tuple[nn.Module, nn.Module]:
    """The bare network with fresh weights, which depend on the seed, and the same network with its
    normalisation.

    Raises:
        ModelError: the architecture is unknown, its options do not fit, or its code is not trusted.
    """
    section = spec.network
    source = Source(model_section(spec), spec.origin.folder, trust=trust)
    # Weights are drawn on the host: the same for every device.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)
        bare = build_architecture(source, None)
        if section.orthogonal:
            orthogonalise(bare, spec.origin.place(("network", "orthogonal")))
    if not section.mean:
        return bare, bare
    return bare, Normalised(bare, torch.tensor(section.mean), torch.tensor(section.std))


def objective_class(name: str, where: str = "objective") -> type[Objective]:
    """The class registered under a name.

    Raises:
        SpecError: unknown name, with a did-you-mean.
        RobauditError: the plugin cannot be imported, is not an Objective, or lacks a required
            declaration.
    """
    return load_class(OBJECTIVES, "objective", name, Objective, where)  # type: ignore[type-abstract]


def build_objective(spec: TrainingSpec) -> Objective:
    """The objective with its options.

    Raises:
        SpecError: an option is unknown or wrong.
        RobauditError: the plugin cannot be imported.
    """
    place = ("objective", spec.objective.name)
    cls = objective_class(spec.objective.name, spec.origin.place(("objective",)))
    context = {BASE_DIR: spec.origin.folder}
    with blaming(f"objective {spec.objective.name}", cls):
        try:
            return cls.model_validate(spec.objective.options, context=context)
        except ValidationError as error:
            raise explain(error, spec.origin, place) from error


def read_images(
    section: BaseDatasetSpec, spec: TrainingSpec, listener: Listener, *, trust: bool
) -> tuple[Tensor, Tensor]:
    """All images (n, channels, height, width), float32 in [0, 1], and their labels (n,).

    Raises:
        DataError: an image cannot be used, or has no label.
    """
    data: Dataset = open_dataset(section, base_dir=spec.origin.folder, trust=trust)
    listener.doing(f"reading {len(data):,} images")
    images: Tensor | None = None
    labels = torch.empty(len(data), dtype=torch.int64)
    for i in range(len(data)):
        sample = data[i]
        if sample.label is None:
            what = f"sample {sample.id!r} has no label"
            raise DataError(data.where, what, "training needs one for each image")
        if images is None:
            # The first image gives the shape; a list of images would need twice the memory.
            images = torch.empty((len(data), *sample.pixels.shape), dtype=torch.float32)
        images[i] = sample.pixels
        labels[i] = sample.label
    if images is None:
        raise DataError(data.where, "has no samples", "give a data set with at least one")
    return images, labels


def data_digest(images: Tensor, labels: Tensor) -> str:
    """sha256 (hex) of images and labels."""
    # The shape first: the same bytes in another shape are other images.
    digest = hashlib.sha256(str(tuple(images.shape)).encode())
    for values in (images, labels):
        digest.update(values.contiguous().numpy().data)
    return digest.hexdigest()


def check_fit(network: nn.Module, images: Tensor, labels: Tensor, where: str) -> None:
    """Refuse a network that does not fit the images or their labels.

    Raises:
        ModelError: the network cannot take the images, or has too few logits.
    """
    remedy = "see architecture_options"
    try:
        with torch.no_grad():
            logits = network.eval()(images[:2])
    except (RuntimeError, ValueError, TypeError) as error:
        shape = " x ".join(map(str, images.shape[1:]))
        what = f"cannot take images of {shape} ({error})"
        raise ModelError(where, what, remedy) from error
    classes = int(labels.max()) + 1
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        output = "no logits (n, classes)"
    elif logits.shape[1] < classes:
        output = f"{logits.shape[1]} logits"
    else:
        return
    what = f"the network gives {output}, and the labels have {classes} classes"
    raise ModelError(where, what, remedy)
