"""Train the demo's two classifiers again: ``python -m robaudit.demo.train``."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from safetensors.torch import save as safetensors_bytes
from torch import Tensor, nn

from robaudit.datasets.digits import DigitsSpec
from robaudit.errors import RobauditError
from robaudit.models.architectures import digits_cnn

EPOCHS = 60
BATCH = 64
LEARNING_RATE = 4e-3  # the largest of the one-cycle schedule
SHOWN_SIGMA = 0.25  # of the noise at which the command prints the accuracy


@dataclass(frozen=True, slots=True)
class DemoRecipe:
    """The training of one of the two classifiers.

    Attributes:
        name: of its file.
        noise_sigma: standard deviation of the Gaussian noise added to its training images.
        seed: of its first weights, its noise and the order of its images.
    """

    name: str
    noise_sigma: float
    seed: int


RECIPES = (DemoRecipe("digits_cnn", 0.0, 1), DemoRecipe("digits_cnn_noise", 0.3, 1))


def images_and_labels(split: Literal["train", "test"]) -> tuple[Tensor, Tensor]:
    """A whole split of the digits: images (n, 1, 8, 8) in [0, 1] and labels (n,)."""
    dataset = DigitsSpec(split=split).open(Path(), trust=False)
    samples = [dataset[index] for index in range(len(dataset))]
    images = torch.stack([sample.pixels for sample in samples]).float()
    return images, torch.tensor([sample.label for sample in samples])


def train(recipe: DemoRecipe, epochs: int = EPOCHS) -> nn.Module:
    """Train one classifier on the training split, with Adam and a one-cycle schedule.

    The loss is the cross-entropy. Fresh noise is drawn for every image and epoch and is not
    clipped, as in an audit. The result depends on the recipe and the number of epochs alone, up to
    rounding; the global random state is left as it was.

    Args:
        recipe: which classifier.
        epochs: passes over the training images.

    Raises:
        RobauditError: ``epochs`` is less than 1.
    """
    if epochs < 1:
        raise RobauditError("--epochs", f"is {epochs}", "give at least 1")
    images, labels = images_and_labels("train")
    generator = torch.Generator().manual_seed(recipe.seed)
    # torch draws first weights from the global state only.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        network = digits_cnn()
    optimiser = torch.optim.Adam(network.parameters(), weight_decay=1e-4)
    batches = -(-len(images) // BATCH)  # rounded up: the last one is smaller
    steps = epochs * batches
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=LEARNING_RATE, total_steps=steps
    )
    for _ in range(epochs):
        order = torch.randperm(len(images), generator=generator)
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            # Drawn for a sigma of 0, too: both recipes take the images in the same order.
            noise = torch.randn(images[chosen].shape, generator=generator)  # (batch, 1, 8, 8)
            logits = network(images[chosen] + recipe.noise_sigma * noise)
            loss = F.cross_entropy(logits, labels[chosen])
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            schedule.step()
    return network.eval()


def accuracy(network: nn.Module, sigma: float = 0.0, copies: int = 1) -> float:
    """The share of test images that a network classifies correctly, clean or under Gaussian noise.

    Args:
        network: the classifier.
        sigma: standard deviation of the noise; 0: clean.
        copies: noisy copies of each image.
    """
    images, labels = images_and_labels("test")
    generator = torch.Generator().manual_seed(0)
    correct = 0
    with torch.no_grad():
        for _ in range(copies):
            noise = torch.randn(images.shape, generator=generator)
            correct += int((network(images + sigma * noise).argmax(1) == labels).sum())
    return correct / (copies * len(labels))


def save(network: nn.Module, recipe: DemoRecipe, folder: Path, epochs: int = EPOCHS) -> Path:
    """Write the weights with a record of how they were made; return the file.

    Raises:
        RobauditError: the folder cannot be written.
    """
    noise = ", no noise"
    if recipe.noise_sigma:
        noise = f", Gaussian pixel noise of sigma {recipe.noise_sigma}"
    metadata = {
        "architecture": "robaudit:digits_cnn",
        "data": "scikit-learn handwritten digits, robaudit's train split; pixels in [0, 1]",
        "training": f"Adam, one-cycle schedule, {epochs} epochs, batch {BATCH}, seed "
        f"{recipe.seed}{noise}",
        "test_accuracy": f"{accuracy(network):.4f}",
        "torch": torch.__version__.partition("+")[0],
        "made_by": "python -m robaudit.demo.train",
    }
    path = folder / f"{recipe.name}.safetensors"
    # safetensors takes tensors without gaps only.
    tensors = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(safetensors_bytes(tensors, metadata))
    except OSError as error:
        raise RobauditError(
            str(path),
            f"cannot be written ({error.strerror or error})",
            "choose another folder with --out",
        ) from None
    return path


def main(arguments: list[str] | None = None) -> int:
    """Train and write both classifiers; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m robaudit.demo.train", description=__doc__)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).parent,
        help="folder for the weights (default: the demo's)",
    )
    parser.add_argument(
        "--epochs",
        type=int,
        default=EPOCHS,
        help="passes over the training images (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    threads = torch.get_num_threads()
    # The order of sums, and so the last digits, would depend on the number of threads.
    torch.set_num_threads(1)
    try:
        for recipe in RECIPES:
            network = train(recipe, options.epochs)
            path = save(network, recipe, options.out, options.epochs)
            clean = accuracy(network)
            noisy = accuracy(network, SHOWN_SIGMA, copies=20)
            sys.stdout.write(
                f"{path}: test accuracy {clean:.4f}, with noise of sigma {SHOWN_SIGMA} "
                f"{noisy:.4f}\n"
            )
    except RobauditError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    finally:
        torch.set_num_threads(threads)
    return 0


if __name__ == "__main__":
    sys.exit(main())
