"""The coverage study: `python -m tests.coverage` writes coverage.md into `--out` (default docs/research/); about an hour on one core.

With `--saved FILE` each part is written there as it ends, and parts that are there already are not repeated: the same command goes on
after an interruption. `--parts` names the parts to do (`--parts list` shows them); the page is of all that are saved.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from tests.coverage import audits, counts, networks, others, subjects
from tests.coverage.audits import Errors
from tests.coverage.report import markdown
from tests.coverage.study import CASES, Line

Found = Iterable[Line | Errors]
_OTHERS = 12
"""Images for rare failures, tolerances, losses and certificates."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Do each part, print its lines and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.coverage", description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES, help="simulated cases of each entry")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "docs" / "research", help="folder of coverage.md")
    parser.add_argument("--seeds", type=int, default=10, help="audits of each network")
    parser.add_argument("--images", type=int, default=100, help="images of each network made here; of a shared one a quarter")
    parser.add_argument("--draws", type=int, default=5000, help="copies of each image behind the truth")
    parser.add_argument("--saved", type=Path, help="file of the parts that are done")
    parser.add_argument("--parts", nargs="+", help="those that contain one of these texts")
    given = parser.parse_args(arguments)
    parts = _parts(given.cases, given.seeds, given.images, given.draws)
    if given.parts == ["list"]:
        sys.stdout.write("\n".join(parts) + "\n")
        return
    done = dict(_read(given.saved)) if given.saved and given.saved.exists() else {}
    for name, part in parts.items():
        if name in done or (given.parts and not any(text in name for text in given.parts)):
            continue
        started, found = time.perf_counter(), list[Line | Errors]()
        for line in part():
            found.append(line)
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        done[name] = (time.perf_counter() - started, found)
        if given.saved:
            with given.saved.open("a") as file:
                file.write(json.dumps({"part": name, "seconds": done[name][0], "found": [asdict(one) for one in found]}) + "\n")
    everything = [line for name in parts if name in done for line in done[name][1]]
    seconds = sum(done[name][0] for name in parts if name in done)
    settings = f"{given.seeds} seeds, {given.images} images, {given.draws:,} copies"
    given.out.mkdir(parents=True, exist_ok=True)
    lines, errors = [one for one in everything if isinstance(one, Line)], [one for one in everything if isinstance(one, Errors)]
    (given.out / "coverage.md").write_text(markdown(lines, seconds, errors, settings))


def _parts(cases: int, seeds: int, images: int, draws: int) -> Mapping[str, Callable[[], Found]]:
    """What to do, by name; the settings belong to the name."""
    parts: dict[str, Callable[[], Found]] = {
        f"counts, {cases} cases": lambda: counts.lines(cases),
        f"jackknife, {cases} cases": lambda: networks.lines(cases),
    }
    for network in subjects.names():
        about = f"{network}: {{}}, {seeds} seeds, {images} images, {draws} copies"
        parts[about.format("audits")] = lambda network=network: audits.study(subjects.subject(network, images), seeds, draws)  # type: ignore[misc]
        if network in subjects.MADE and network.endswith("ReLU"):
            parts[about.format("many")] = lambda network=network: audits.many(subjects.subject(network, 4 * images), seeds, draws)  # type: ignore[misc]
        if network in subjects.MADE:
            few = min(_OTHERS, images)
            parts[about.format("others")] = lambda network=network, few=few: others.study(  # type: ignore[misc]
                subjects.subject(network, few), max(1, seeds // 5), 10 * draws
            )
    return parts


def _read(path: Path) -> Iterator[tuple[str, tuple[float, list[Line | Errors]]]]:
    for text in path.read_text().splitlines():
        one = json.loads(text)
        yield one["part"], (one["seconds"], [Errors(**line) if "network" in line else Line(**line) for line in one["found"]])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
