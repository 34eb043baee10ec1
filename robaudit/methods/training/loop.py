"""The training loop, and a seed for each step, so that a step depends on its number alone."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from robaudit.errors import RobauditError
from robaudit.methods.training.spec import Recipe
from robaudit.methods.training.training_objective import Batch, Objective
from robaudit.progress import Listener

_MOMENTUM = 0.9  # of sgd


def fit(
    network: nn.Module,
    objective: Objective,
    images: Tensor,
    labels: Tensor,
    recipe: Recipe,
    listener: Listener | None = None,
) -> list[float]:
    """Train a network in place, and leave it in evaluation mode.

    The order of an epoch depends on the seed and the epoch, the random numbers of a step on the
    seed and the step. torch's global random state is left as it was.

    Args:
        network: pixels in [0, 1] (n, channels, height, width) -> logits (n, classes).
        objective: what is minimised.
        images: (n, channels, height, width), on the device of the network.
        labels: (n,), on the same device.
        recipe: epochs, batches, optimizer and seed.
        listener: receives the progress.

    Returns:
        The mean loss of each epoch.

    Raises:
        RobauditError: the loss is no longer finite.
    """
    listener = listener or Listener()
    total = len(images)
    epoch_steps = math.ceil(total / recipe.batch_size)
    steps = recipe.epochs * epoch_steps
    optimizer = _optimizer(network, recipe)
    losses = list[float]()
    listener.begin(steps, 0)
    network.train()
    with _own_randomness(images.device):
        for epoch in range(recipe.epochs):
            last_loss = f", loss {losses[-1]:.4g}" if losses else ""
            listener.doing(f"epoch {epoch + 1} of {recipe.epochs}{last_loss}")
            # On the device: reading it at each step would make the host wait.
            loss_sum = torch.zeros((), dtype=torch.float64, device=images.device)
            batches = _batches(recipe.seed, epoch, total, epoch_steps, images.device)
            for step, chosen in enumerate(batches, epoch * epoch_steps):
                _reseed(images.device, _seed(recipe.seed, "step", step))
                batch = Batch(network, images[chosen], labels[chosen])
                loss = _step(batch, objective, optimizer, _rate(recipe, step, steps))
                loss_sum += loss * len(chosen)
                listener.working((step + 1) / steps)
                listener.advance(1)
            losses.append(_finite(float(loss_sum), epoch) / total)
    network.eval()
    return losses


def _step(
    batch: Batch, objective: Objective, optimizer: torch.optim.Optimizer, rate: float
) -> Tensor:
    """Take one step of the optimizer; the loss ()."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    # An objective passes the network many times: orthogonal weights are computed once a step.
    with parametrize.cached():
        loss = objective.loss(batch)
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    optimizer.step()
    return loss.detach()


def _optimizer(network: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(
            network.parameters(), lr=recipe.lr, momentum=_MOMENTUM, weight_decay=recipe.weight_decay
        )
    return torch.optim.Adam(network.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)


def _rate(recipe: Recipe, step: int, steps: int) -> float:
    """The learning rate of a step."""
    if recipe.schedule == "cosine":
        return recipe.lr * (0.5 + 0.5 * math.cos(math.pi * step / steps))
    return recipe.lr


def _batches(
    seed: int, epoch: int, total: int, steps: int, device: torch.device
) -> tuple[Tensor, ...]:
    """The batches of an epoch, as image indices; their sizes differ by one at most."""
    # A generator on the host gives every device the same order.
    generator = torch.Generator().manual_seed(_seed(seed, "epoch", epoch))
    return torch.randperm(total, generator=generator).to(device).tensor_split(steps)


def _finite(loss: float, epoch: int) -> float:
    """The loss.

    Raises:
        RobauditError: it is not finite.
    """
    if not math.isfinite(loss):
        raise RobauditError(f"epoch {epoch + 1}", f"the loss is {loss}", "choose a smaller lr")
    return loss


def _seed(seed: int, purpose: str, number: int) -> int:
    """A seed for torch, derived from the run's."""
    digest = hashlib.sha256(f"{seed} {purpose} {number}".encode()).digest()
    # 63 bits: non-negative for any use as a signed integer
    return int.from_bytes(digest[:8], "little") >> 1


def _reseed(device: torch.device, seed: int) -> None:
    """Seed torch's CPU generator and this device's; torch.manual_seed takes a tenth of a short
    step."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


@contextmanager
def _own_randomness(device: torch.device) -> Iterator[None]:
    """Leave torch's random state as it was."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield
