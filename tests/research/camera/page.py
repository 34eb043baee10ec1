"""The results as a Markdown page and as JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from scipy import stats

from robaudit.files import write_atomically
from tests.research.camera.networks import AIM, Robustness
from tests.research.camera.study import LEAST_COVERED, LEAST_RIGHT, Verdicts
from tests.research.coverage.study import NOMINAL, Line


def write(
    folder: Path,
    lines: Sequence[Line],
    verdicts: Sequence[Verdicts],
    networks: Sequence[Robustness],
) -> None:
    """Write `camera.md` and `camera.json`."""
    documents = {
        "coverage": [asdict(line) for line in lines],
        "verdicts": [asdict(one) for one in verdicts],
        "networks": [asdict(one) for one in networks],
    }
    write_atomically(folder / "camera.json", (json.dumps(documents, indent=1) + "\n").encode())
    parts = (_coverage(lines), _verdicts(verdicts), _networks(networks))
    write_atomically(folder / "camera.md", ("\n".join(parts)).encode())


def _coverage(lines: Sequence[Line]) -> str:
    """How often the intervals held the truth: by camera and quantity, and the worst ones."""
    cameras = list(dict.fromkeys(_camera(line) for line in lines))
    quantities = list(dict.fromkeys(_quantity(line) for line in lines))
    rows = [
        (camera, *(_pooled(lines, camera, quantity) for quantity in quantities))
        for camera in cameras
    ]
    below = [line for line in lines if line.covered < LEAST_COVERED]
    about = (
        f"Share of the intervals that hold the truth, over scenes, shots and channels. Of "
        f"{len(lines)} single ones {len(below)} cover less than {LEAST_COVERED}. In as many "
        f"series, {_expected(lines):.0f} would be there if all covered {NOMINAL}."
    )
    table = _part("Coverage", about, ("camera", *quantities), rows)
    worst = [
        (line.setting, line.interval, f"{line.truth:.4g}", f"{line.width:.2g}", _share(line))
        for line in sorted(below, key=lambda line: line.covered)
    ]
    head = ("camera, scene, shots", "quantity", "truth", "width", "covered")
    return table + "\n" + _part("Below", f"Less than {LEAST_COVERED}.", head, worst)


def _camera(of: Line | Verdicts) -> str:
    """The name of the camera: a setting is that, a scene, and a number of shots."""
    return of.setting.rsplit(", ", 2)[0]


def _quantity(line: Line) -> str:
    """What is measured, without channels and distances."""
    return re.split(r"[\[(]", line.interval)[0]


def _pooled(lines: Sequence[Line], camera: str, quantity: str) -> str:
    """The share of covered cases of a camera and a quantity."""
    chosen = [line for line in lines if _camera(line) == camera and _quantity(line) == quantity]
    cases = sum(line.cases for line in chosen)
    if not cases:
        return "-"
    covered = sum(line.covered * line.cases for line in chosen) / cases
    return _marked(f"{covered:.3f}", covered >= LEAST_COVERED)


def _share(line: Line) -> str:
    return f"{line.covered:.3f} of {line.cases}"


def _expected(lines: Sequence[Line]) -> float:
    """How many intervals of the nominal coverage would be below, on average."""
    cases = np.array([line.cases for line in lines])
    most = np.ceil(LEAST_COVERED * cases) - 1
    return float(stats.binom.cdf(most, cases, NOMINAL).sum())


def _verdicts(verdicts: Sequence[Verdicts]) -> str:
    """How often the right noise was found, by camera."""
    rows = []
    for camera in dict.fromkeys(_camera(one) for one in verdicts):
        chosen = [one for one in verdicts if _camera(one) == camera]
        counts: Counter[str] = Counter()
        for one in chosen:
            counts.update(one.counts)
        together = Verdicts(camera, chosen[0].right, counts)
        lowest = min(chosen, key=lambda one: one.share)
        where = "" if lowest.share == 1 else f" ({lowest.setting.removeprefix(camera + ', ')})"
        rows.append(
            (
                camera,
                " or ".join(together.right),
                f"{together.share:.3f}",
                _marked(f"{lowest.share:.3f}", lowest.share >= LEAST_RIGHT) + where,
                ", ".join(f"{name} {count}" for name, count in sorted(counts.items())),
            )
        )
    head = ("camera", "right", "share", "lowest", "verdicts")
    below = sum(one.share < LEAST_RIGHT for one in verdicts)
    about = f"Of {len(verdicts)} settings {below} are right less often than {LEAST_RIGHT} (bold)."
    return _part("Verdicts", about, head, rows)


def _networks(networks: Sequence[Robustness]) -> str:
    """p_robust behind the camera and under what was measured."""
    rows = []
    for one in networks:
        for name, value in one.noises.items():
            difference = value - one.camera
            rows.append(
                (
                    one.network,
                    one.case,
                    f"{one.camera:.4f} ± {one.error:.4f}",
                    name,
                    f"{value:.4f}",
                    _marked(f"{difference:+.4f}", abs(difference) <= AIM),
                )
            )
    head = ("network", "camera", "p_robust behind it", "noise", "p_robust", "difference")
    about = f"Differences larger than {AIM} are bold."
    return _part("Networks", about, head, rows)


def _marked(text: str, good: bool) -> str:
    """Bold if it is not good."""
    return text if good else f"**{text}**"


def _part(title: str, about: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A heading, a sentence and a table."""
    cells = [head, ["---"] * len(head), *rows]
    table = "\n".join("| " + " | ".join(row) + " |" for row in cells)
    return f"## {title}\n\n{about}\n\n{table}\n"
