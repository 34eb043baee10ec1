"""The coverage study: `python -m tests.coverage` (some minutes on one core) writes coverage.md into `--out` (default docs/)."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.coverage import counts, networks
from tests.coverage.report import markdown
from tests.coverage.study import CASES, Line


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate every interval, print each line and write the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.coverage", description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES, help="simulated cases of each entry")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "docs", help="folder of coverage.md")
    given = parser.parse_args(arguments)
    started = time.perf_counter()
    found: list[Line] = []
    for part in (counts, networks):
        for line in part.lines(given.cases):
            found.append(line)
            sys.stdout.write(f"{line.covered:.4f} {'' if line.holds else 'LOW '}{line.interval}, {line.setting}, p = {line.truth:g}\n")
            sys.stdout.flush()
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "coverage.md").write_text(markdown(found, time.perf_counter() - started))


if __name__ == "__main__":
    main()
