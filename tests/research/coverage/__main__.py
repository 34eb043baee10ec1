"""The coverage study: `python -m tests.research.coverage` prints the numbers of
docs/research/coverage.md; about an hour on one core."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

import torch

from tests.research.coverage import audits, counts, networks, subjects
from tests.research.coverage.audits import Errors
from tests.research.coverage.study import CASES, Line


def main(arguments: Sequence[str] | None = None) -> None:
    """Do each part and print its lines."""
    parser = argparse.ArgumentParser(prog="python -m tests.research.coverage", description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES, help="simulated cases of each entry")
    parser.add_argument("--seeds", type=int, default=10, help="audits of each network")
    parser.add_argument(
        "--images",
        type=int,
        default=100,
        help="images of each network made here; of a shared one a quarter",
    )
    parser.add_argument(
        "--draws", type=int, default=5000, help="copies of each image behind the truth"
    )
    given = parser.parse_args(arguments)
    parts: tuple[Iterator[Line | Errors], ...] = (
        counts.lines(given.cases),
        networks.lines(given.cases),
        _audits(given.seeds, given.images, given.draws),
    )
    for part in parts:
        for line in part:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


def _audits(seeds: int, images: int, draws: int) -> Iterator[Errors]:
    """Whole audits of every network."""
    for name in subjects.names():
        yield from audits.study(subjects.subject(name, images), seeds, draws)
        if name in subjects.MADE and name.endswith("ReLU"):
            yield from audits.many(subjects.subject(name, 4 * images), seeds, draws)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
