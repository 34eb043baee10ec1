"""The training loop, its checkpoints, and a seed for each step, so that a step depends on its number alone."""

from __future__ import annotations

import hashlib
import io
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from robaudit.errors import RobauditError, RunError
from robaudit.files import write_atomically
from robaudit.progress import Listener
from robaudit.training.base import Batch, Objective
from robaudit.training.spec import Recipe

SECONDS_BETWEEN_CHECKPOINTS = 30.0
_MOMENTUM = 0.9


@dataclass(slots=True)
class Checkpoint:
    """The state of a training on disk.

    Attributes:
        path: the file.
        identity: the digest of the training; the checkpoint of another training is refused.
    """

    path: Path
    identity: str
    _written: float = field(default_factory=time.monotonic)

    @property
    def due(self) -> bool:
        """Whether the next checkpoint is due."""
        return time.monotonic() - self._written >= SECONDS_BETWEEN_CHECKPOINTS

    def write(self, step: int, losses: list[float], network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Write the state after ``step`` steps, atomically.

        Raises:
            RunError: the file system refuses.
        """
        file = io.BytesIO()
        state = {"step": step, "losses": losses, "network": network.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({"identity": self.identity, **state}, file)
        write_atomically(self.path, file.getvalue())
        self._written = time.monotonic()

    def read(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[int, list[float]]:
        """Restore the state; the number of steps done, and the mean loss of each epoch (the sum so far of an unfinished one).

        Raises:
            RunError: the file is damaged, or belongs to another training.
        """
        if not self.path.exists():
            return 0, []
        try:
            state: dict[str, Any] = torch.load(self.path, map_location="cpu", weights_only=True)
            other = state["identity"] != self.identity
            if not other:
                network.load_state_dict(state["network"])
                optimizer.load_state_dict(state["optimizer"])
        except Exception as error:
            raise RunError(
                str(self.path), f"is not a whole checkpoint ({type(error).__name__})", "delete it to train from the start"
            ) from error
        if other:
            raise RunError(str(self.path), "is the checkpoint of another training", "choose another folder with --out, or delete it")
        return int(state["step"]), [float(loss) for loss in state["losses"]]


def fit(
    network: nn.Module,
    objective: Objective,
    images: Tensor,
    labels: Tensor,
    recipe: Recipe,
    *,
    checkpoint: Checkpoint | None = None,
    listener: Listener | None = None,
) -> list[float]:
    """Train a network in place, and leave it in evaluation mode.

    The order of an epoch depends on the seed and the epoch, the random numbers of a step on the seed and the step: resuming
    from a checkpoint gives the same weights, bit for bit on the CPU. torch's global random state is left as it was.

    Args:
        network: pixels in [0, 1] (n, channels, height, width) -> logits (n, classes).
        objective: what is minimised.
        images: (n, channels, height, width), on the device of the network.
        labels: (n,), on the same device.
        recipe: epochs, batches, optimizer and seed.
        checkpoint: written every 30 seconds; training resumes from it if the file exists. None: no checkpoint.
        listener: receives the progress.

    Returns:
        The mean loss of each epoch.

    Raises:
        RobauditError: the loss is no longer finite.
        RunError: the checkpoint belongs to another training, or cannot be written.
        KeyboardInterrupt: the listener asked to stop; the checkpoint holds all steps so far.
    """
    listener, total = listener or Listener(), len(images)
    epoch_steps = -(-total // recipe.batch_size)
    steps = recipe.epochs * epoch_steps
    optimizer = _optimizer(network, recipe)
    done, losses = checkpoint.read(network, optimizer) if checkpoint is not None else (0, [])
    listener.begin(steps, done)
    network.train()
    order: tuple[Tensor, ...] = ()
    running = torch.zeros((), dtype=torch.float64, device=images.device)
    if done % epoch_steps:
        running += losses.pop()
    with _own_randomness(images.device):
        for step in range(done, steps):
            epoch, place = divmod(step, epoch_steps)
            if not order or place == 0:
                listener.doing(f"epoch {epoch + 1} of {recipe.epochs}" + (f", loss {losses[-1]:.4g}" if losses else ""))
                order = _order(recipe.seed, epoch, total, epoch_steps, images.device)
            _reseed(images.device, _seed(recipe.seed, "step", step))
            chosen = order[place]
            loss = _step(Batch(network, images[chosen], labels[chosen]), objective, optimizer, _rate(recipe, step, steps))
            running += loss * len(chosen)
            last = place == epoch_steps - 1
            if last:
                losses.append(_finite(float(running), epoch) / total)
                running.zero_()
            listener.working((step + 1 - done) / (steps - done))
            listener.advance(1)
            stop = listener.stop_asked()
            if checkpoint is not None and (stop or checkpoint.due):
                state = losses if last else [*losses, _finite(float(running), epoch)]
                checkpoint.write(step + 1, state, network, optimizer)
            if stop:
                raise KeyboardInterrupt
    network.eval()
    return losses


def _step(batch: Batch, objective: Objective, optimizer: torch.optim.Optimizer, rate: float) -> Tensor:
    """Take one step of the optimizer; the loss ()."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    with parametrize.cached():
        loss = objective.loss(batch)
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    optimizer.step()
    return loss.detach()


def _optimizer(network: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(network.parameters(), lr=recipe.lr, momentum=_MOMENTUM, weight_decay=recipe.weight_decay)
    return torch.optim.Adam(network.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)


def _rate(recipe: Recipe, step: int, steps: int) -> float:
    """The learning rate of a step."""
    return recipe.lr * (0.5 + 0.5 * math.cos(math.pi * step / steps) if recipe.schedule == "cosine" else 1.0)


def _order(seed: int, epoch: int, total: int, steps: int, device: torch.device) -> tuple[Tensor, ...]:
    """The batches of an epoch, as image indices; their sizes differ by one at most."""
    generator = torch.Generator().manual_seed(_seed(seed, "epoch", epoch))
    return torch.randperm(total, generator=generator).to(device).tensor_split(steps)


def _finite(loss: float, epoch: int) -> float:
    if not math.isfinite(loss):
        raise RobauditError(f"epoch {epoch + 1}", f"the loss is {loss}", "choose a smaller lr")
    return loss


def _seed(seed: int, what: str, number: int) -> int:
    """A seed for torch, derived from the run's."""
    return int.from_bytes(hashlib.sha256(f"{seed} {what} {number}".encode()).digest()[:8], "little") >> 1


def _reseed(device: torch.device, seed: int) -> None:
    """Seed torch's CPU generator and this device's; torch.manual_seed takes a tenth of a short step."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


@contextmanager
def _own_randomness(device: torch.device) -> Iterator[None]:
    """Leave torch's random state as it was."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield
