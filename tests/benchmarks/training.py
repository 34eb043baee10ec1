"""Part `training`: robaudit's training loop against a bare one in plain PyTorch, on the same steps."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robaudit.models.architectures import digits_cnn, small_cnn
from robaudit.training.cross_entropy import CrossEntropy
from robaudit.training.loop import fit
from robaudit.training.spec import Recipe
from tests.benchmarks.networks import Bench
from tests.benchmarks.report import Section, Table, number, target
from tests.benchmarks.timing import alternating

BATCH, RATE = 128, 1e-3
SLOWER = 1 / 0.9
"""How many times as long as the bare loop it may take."""


def bare(network: nn.Module, images: Tensor, labels: Tensor) -> None:
    """An epoch as one would write it by hand."""
    network.train()
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    for chosen in torch.randperm(len(images), device=images.device).split(BATCH):
        loss = F.cross_entropy(network(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()


def measure(bench: Bench) -> Section:
    """The digits network, whose steps are the shortest, and the convolutional network of 28 x 28 images."""
    count = 2 * BATCH if bench.quick else 50 * BATCH
    recipe = Recipe(epochs=1, batch_size=BATCH, lr=RATE)
    raw: dict[str, Any] = {}
    rows, targets = [], []
    for name, network, side in (("digits_cnn", digits_cnn(), 8), ("small_cnn", small_cnn(), 28)):
        ours, other = (copy.deepcopy(network).to(bench.device) for _ in range(2))
        images = torch.rand((count, 1, side, side), generator=torch.Generator().manual_seed(0)).to(bench.device)
        labels = (torch.arange(count) % 10).to(bench.device)
        found = alternating(
            {
                "bare": lambda net=other, x=images, y=labels: bare(net, x, y),  # type: ignore[misc]
                "robaudit": lambda net=ours, x=images, y=labels: fit(net, CrossEntropy(), x, y, recipe),  # type: ignore[misc]
            },
            bench.device,
            1 if bench.quick else 9,
        )
        ratio = found["robaudit"] / found["bare"]
        raw[name] = {**found, "ratio": ratio}
        rows.append([name, number(count / found["bare"]), number(count / found["robaudit"]), number(ratio)])
        targets.append(target(f"{name}: time of the loop / the bare loop", SLOWER, ratio))
        bench.say(f"  {name}: {ratio:.3f} times the bare loop")
    return Section(
        title=f"Training ({bench.device.type})",
        reading=f"Images per second of an epoch of cross-entropy training with Adam and batches of {BATCH}; ratio: of the times.",
        tables=[Table(["network", "bare loop", "robaudit", "ratio"], rows)],
        targets=targets,
        raw=raw,
    )
