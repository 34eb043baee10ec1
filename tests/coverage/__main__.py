"""The coverage study: `python -m tests.coverage` writes coverage.md into `--out` (default docs/); an hour on one core."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.coverage import audits, counts, networks
from tests.coverage.report import markdown
from tests.coverage.study import CASES, Line


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate every interval, print each line and write the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.coverage", description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES, help="simulated cases of each entry")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "docs", help="folder of coverage.md")
    parser.add_argument("--seeds", type=int, default=20, help="audits of each network")
    parser.add_argument("--images", type=int, default=100, help="images of each network made here")
    parser.add_argument("--draws", type=int, default=audits.TRUTH, help="copies of each image behind the truth")
    parser.add_argument("--networks", type=int, help="only so many of the networks made here, and none of the shared")
    given = parser.parse_args(arguments)
    started = time.perf_counter()
    found: list[Line] = []
    for part in (counts, networks):
        for line in part.lines(given.cases):
            found.append(line)
            sys.stdout.write(f"{line.covered:.4f} {'' if line.holds else 'LOW '}{line.interval}, {line.setting}, p = {line.truth:g}\n")
            sys.stdout.flush()
    wrong = list[audits.Errors]()
    for one in audits.errors(given.seeds, given.images, given.draws, shared=given.networks is None, most=given.networks):
        wrong.append(one)
        sys.stdout.write(f"{one.network}, {one.estimator}, {one.about}: {one.up} above, {one.down} below of {one.cases}\n")
        sys.stdout.flush()
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "coverage.md").write_text(markdown(found, time.perf_counter() - started, wrong))


if __name__ == "__main__":
    main()
