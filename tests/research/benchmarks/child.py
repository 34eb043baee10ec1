"""The peak memory of one estimator, measured in a process of its own by part `memory`."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from robaudit.models import from_module
from robaudit.system import keep_freed_memory
from tests.research.benchmarks import published
from tests.research.benchmarks.networks import Bench, Network, estimator, load, research_resnet20
from tests.research.benchmarks.script import told, values

STATUS = Path("/proc/self/status")
MIB = 2**20


def peak_bytes(device: torch.device) -> int:
    """Peak memory of this process: CUDA's allocator, else the resident set (a parent's ru_maxrss
    would be inherited, VmHWM is not)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if STATUS.exists():
        return (
            int(
                next(
                    line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM")
                ).split()[1]
            )
            * 1024
        )
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def imagenet_like() -> nn.Module:
    """torchvision's resnet18 with random weights and 1,000 classes, its last biases spread so that
    few classes compete."""
    from torchvision.models import resnet18

    torch.manual_seed(0)
    network: nn.Module = resnet18(weights=None).eval().requires_grad_(False)
    nn.init.normal_(network.get_parameter("fc.bias"), std=2.0)
    return network


def run(
    bench: Bench,
    network: str,
    images: int,
    way: str,
    name: str,
    options: dict[str, float],
    sigma: float,
) -> float:
    """Peak MiB of a process that loads the network and estimates some images; way: nothing, ours or
    published."""
    f: Callable[[Tensor], Tensor]
    if network == "cifar10_resnet20":
        loaded = load(bench, network, images)
        f = research_resnet20(bench)
    else:
        module = imagenet_like().to(bench.device)
        x = torch.rand(images, 3, 224, 224, generator=torch.Generator().manual_seed(1)).to(
            bench.device
        )
        loaded = Network(network, from_module(module, device=bench.device), x, 1000)
        f = module
    if way == "published":
        _published(f, loaded.x, name, options, sigma)
    elif way == "ours":
        keep_freed_memory()
        chosen = estimator(name, **options)
        chosen.estimate(loaded.batch(sigma))
    return peak_bytes(bench.device) / MIB


def _published(
    f: Callable[[Tensor], Tensor], x: Tensor, name: str, options: dict[str, float], sigma: float
) -> None:
    """`classes`: only the first rows of the Jacobian, where the whole does not fit or takes too
    long; no CDF then."""
    samples = int(options.get("samples", 1))
    if "classes" in options:
        copies = x[:1].expand(samples, *x.shape[1:]) + sigma * torch.randn(
            samples, *x.shape[1:], device=x.device
        )
        published.jacobian(lambda batch: f(batch)[:, : int(options["classes"])], copies)
    else:
        values(f, x, name, sigma, samples)


def main() -> None:
    """Read the case as JSON from the first argument, print MiB."""
    bench, case = told(sys.argv[1])
    print(run(bench, **case))


if __name__ == "__main__":
    main()
