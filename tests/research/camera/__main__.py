"""`python -m tests.research.camera --out FOLDER [PARTS]` measures the noise of simulated cameras
and writes camera.md and camera.json; half an hour on one core.

- `series`: coverage of the intervals and share of right verdicts.
- `networks`: p_robust of shared networks behind a camera and under the measured noise.

What was measured is kept in FOLDER/measured.jsonl: the same command goes on where it ended.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.research.camera import networks, page, study
from tests.research.camera.measuring import measure
from tests.research.camera.networks import NETWORKS, Robustness
from tests.research.camera.store import Store
from tests.research.camera.study import REPETITIONS, Verdicts
from tests.research.coverage.study import Line

PARTS = ("series", "networks")


def main(arguments: Sequence[str] | None = None) -> None:
    """Do each part, and write the page after every setting."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.research.camera",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PARTS", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the results")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="of each setting")
    parser.add_argument("--only", default="", help="cameras with this in their name")
    parser.add_argument("--images", type=int, default=400, help="of each network")
    parser.add_argument("--draws", type=int, default=40, help="of each image")
    given = parser.parse_args(arguments)
    store = Store(given.out / "measured.jsonl")
    lines: list[Line] = []
    verdicts: list[Verdicts] = []
    found: list[Robustness] = []
    if "series" in (given.parts or PARTS):
        for setting in study.settings(given.only):
            study.repeat(setting, given.repetitions, measure, store)
            lines += study.lines(setting, store)
            verdict = study.verdicts(setting, store)
            verdicts += [] if verdict is None else [verdict]
            page.write(given.out, lines, verdicts, found)
            sys.stderr.write(f"{setting}\n")
    if "networks" in (given.parts or PARTS):
        for network in NETWORKS:
            for one in networks.results(network, given.images, given.draws, store):
                found.append(one)
                page.write(given.out, lines, verdicts, found)
                sys.stderr.write(f"{one.network}, {one.case}\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
