"""Smallest perturbations by robaudit and by two attack libraries, on real networks.

Run by hand: `python -m tests.benchmarks.radius --libraries FOLDER` computes what its file of results lacks (an hour and a half on one
core for all of it, most of that ResNet20), and writes attacks.md, the tables that docs/research/radius.md sums up. The libraries are
installed for this alone, without their dependencies:
`pip install --no-deps --target FOLDER foolbox==3.3.4 eagerpy==0.30.0 adv-lib==0.2.8 gitpython gitdb smmap requests tqdm`.
Nothing is asserted.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from robaudit.system import keep_freed_memory
from tests.benchmarks.machine import machine
from tests.benchmarks.networks import Bench
from tests.benchmarks.radius.libraries import NORMS, Norm, attacks, available
from tests.benchmarks.radius.ours import Ours, budgets
from tests.benchmarks.radius.report import Block, page
from tests.benchmarks.radius.results import Method, Results
from tests.shared import SHARED

NETWORKS = {"mnist_conv_small_nat": 200, "mnist_cnn_a_adv": 200, "cifar10_cnn_a_adv": 200, "cifar10_resnet20": 100}
"""Images of each network."""
BUDGETS, DEAR = (100, 300, 1000), (100, 300)
"""Steps of the libraries' attacks, and on the network that takes longest."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute what is missing, and write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.radius", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--networks", default=",".join(NETWORKS), help="names, separated by commas (default: all)")
    parser.add_argument("--libraries", type=Path, help="the folder that they were installed into, where it is not on the path")
    parser.add_argument("--threads", type=int, default=1, help="torch's threads (default 1)")
    parser.add_argument("--models", type=Path, default=SHARED, help="the folder with models/ and data/; default: ../shared")
    parser.add_argument("--out", type=Path, default=Path(), help="folder of attacks.md (default: the working folder)")
    parser.add_argument("--results", type=Path, help="the file of all values; default: radius-results.json beside the page")
    parser.add_argument("--again", default="", help="compute the values of attacks whose label begins so anew, for example robaudit")
    parser.add_argument("--page", action="store_true", help="write the page from what there is")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    keep_freed_memory()
    versions = available(given.libraries)
    bench = Bench(torch.device("cpu"), shared=given.models, out=given.out, say=_say)
    results = Results(given.results or given.out / "radius-results.json", bench)
    if given.again:
        results.forget(given.again)
    for network in () if given.page else given.networks.split(","):
        for norm in NORMS:
            for method in methods(network, norm):
                results.of(network, norm, method, NETWORKS[network])
            (given.out / "attacks.md").write_text(written(results, versions))
    (given.out / "attacks.md").write_text(written(results, versions))


def methods(network: str, norm: Norm) -> list[Method]:
    """What is compared."""
    return [*budgets(norm), *attacks(norm, DEAR if network == "cifar10_resnet20" else BUDGETS)]


def written(results: Results, versions: dict[str, str]) -> str:
    """The page from the results that there are."""
    blocks = []
    for network, images in NETWORKS.items():
        for norm in NORMS:
            found = {method.label: results.have(network, norm, method, images) for method in methods(network, norm)}
            missing = [label for label, one in found.items() if one is None]
            blocks.append(Block(network, norm, images, {label: one for label, one in found.items() if one is not None}, missing))
    return page(blocks, Ours("l2").label, versions, machine(torch.device("cpu")))


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
