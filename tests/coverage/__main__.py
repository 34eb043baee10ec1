"""The coverage study: `python -m tests.coverage` writes coverage.md into `--out` (default docs/research/); about an hour on one core."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from tests.coverage import audits, counts, networks, subjects
from tests.coverage.audits import Errors
from tests.coverage.report import markdown
from tests.coverage.study import CASES, Line


def main(arguments: Sequence[str] | None = None) -> None:
    """Do each part, print its lines and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.coverage", description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES, help="simulated cases of each entry")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "docs" / "research", help="folder of coverage.md")
    parser.add_argument("--seeds", type=int, default=10, help="audits of each network")
    parser.add_argument("--images", type=int, default=100, help="images of each network made here; of a shared one a quarter")
    parser.add_argument("--draws", type=int, default=5000, help="copies of each image behind the truth")
    given = parser.parse_args(arguments)
    started, lines, errors = time.perf_counter(), list[Line](), list[Errors]()
    for part in (counts.lines(given.cases), networks.lines(given.cases)):
        for line in part:
            lines.append(line)
            sys.stdout.write(f"{line}\n")
    for error in _audits(given.seeds, given.images, given.draws):
        errors.append(error)
        sys.stdout.write(f"{error}\n")
    settings = f"{given.seeds} seeds, {given.images} images, {given.draws:,} copies"
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "coverage.md").write_text(markdown(lines, time.perf_counter() - started, errors, settings))


def _audits(seeds: int, images: int, draws: int) -> Iterator[Errors]:
    """Whole audits of every network."""
    for name in subjects.names():
        yield from audits.study(subjects.subject(name, images), seeds, draws)
        if name in subjects.MADE and name.endswith("ReLU"):
            yield from audits.many(subjects.subject(name, 4 * images), seeds, draws)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
