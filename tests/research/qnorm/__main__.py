"""`python -m tests.research.qnorm [PARTS]` prints what the tables of
docs/research/intermediate_q.md are made of; all parts take some hours on one core.

- `closed`: closed forms.
- `made`: networks made here whose norms are known.
- `values`: images without a value on every shared network.
- `long`: shared networks at q = 10 beside two long computations.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

import torch

from tests.research.qnorm import closed_forms, study
from tests.research.qnorm.networks import NAMES

PARTS = ("closed", "made", "values", "long")


def main(arguments: Sequence[str] | None = None) -> None:
    """Do each part and print its lines."""
    parser = argparse.ArgumentParser(prog="python -m tests.research.qnorm", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PARTS", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--images", type=int, default=50, help="of each network")
    parser.add_argument("--seeds", type=int, default=40, help="audits of each network made here")
    parser.add_argument("--particles", type=int, default=512, help="of the long computation")
    parser.add_argument("--only", default="", help="networks with this in their name")
    given = parser.parse_args(arguments)
    for part in given.parts or PARTS:
        for line in _lines(part, given):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


def _lines(part: str, given: argparse.Namespace) -> Iterator[object]:
    """The lines of one part."""
    if part == "closed":
        yield from closed_forms.lines()
    if part == "made":
        for name in NAMES:
            for noise in study.NOISES:
                if given.only in name:
                    yield from study.lines(name, noise, given.images, given.seeds)
    for model in study.SHARED_NOISES:
        if given.only not in model:
            continue
        if part == "values":
            yield from study.values(model, given.images)
        if part == "long":
            yield from study.long_runs(model, min(given.images, 6), given.particles)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
