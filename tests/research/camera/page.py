"""The results as a Markdown page and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from robaudit.files import write_atomically
from tests.research.camera.networks import AIM, Robustness
from tests.research.camera.study import LEAST_COVERED, LEAST_RIGHT, Verdicts
from tests.research.coverage.study import Line


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
    """How often each interval held the truth."""
    rows = [
        (
            line.setting,
            line.interval,
            f"{line.truth:.4g}",
            f"{line.width:.2g}",
            str(line.cases),
            _marked(f"{line.covered:.3f}", line.covered >= LEAST_COVERED),
        )
        for line in lines
    ]
    head = ("camera, scene, shots", "quantity", "truth", "width", "series", "covered")
    below = sum(line.covered < LEAST_COVERED for line in lines)
    about = f"Of {len(lines)} intervals {below} cover less than {LEAST_COVERED} (bold)."
    return _part("Coverage", about, head, rows)


def _verdicts(verdicts: Sequence[Verdicts]) -> str:
    """How often the right noise was found."""
    rows = [
        (
            one.setting,
            one.right,
            _marked(f"{one.share:.3f}", one.share >= LEAST_RIGHT),
            ", ".join(f"{name} {count}" for name, count in one.counts.items()),
        )
        for one in verdicts
    ]
    head = ("camera, scene, shots", "right", "share", "verdicts")
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
