"""Part `workers`: two processes on one card, half of the images each, beside one process.

Two workers that share a card need Ray, which a machine that is lent may lack; two audits at the
same time ask the same of the card.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from robaudit.stats.reading import read_run
from tests.research.gpu import audit, command
from tests.research.gpu.part import Part
from tests.research.gpu.trace import Load

TWO = "two processes at once"


def measure(part: Part) -> None:
    """Two audits at once, with the copies of the audit of part `audit`."""
    before = {row["what"]: row for row in part.earlier.get("audit", [])}
    if audit.ONE not in before:
        part.left_out.append("all: there is no audit to compare with")
        return
    one = before[audit.ONE]
    start = _number(before[audit.START]["seconds"])
    images = int(_number(one["images"]))
    draws = int(_number(one["draws"]))
    # Two of them may take twice as long as one, and start at the same time.
    needed = 2 * start + _number(one["seconds"])
    if not part.tiny and part.clock.left() < needed:
        part.left_out.append(f"all: {needed:.0f} s are needed")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commands = []
        for half in ("first", "second"):
            spec = command.spec(folder, part, images // 2, draws, half)
            commands.append(command.estimate(spec, half, part))
        with Load() as load:
            taken = max(command.at_once(commands, folder, part.clock.left()))
        infos = [read_run(folder / half).info for half in ("first", "second")]
    passes = sum(info.totals.forwards for info in infos)
    busy = load.mean(after=start) if part.on_card else None
    row = audit.figures(TWO, images, draws, passes, taken, start)
    ratio = None
    if row["rate"] is not None and one["rate"] is not None:
        ratio = _number(row["rate"]) / _number(one["rate"])
    part.add(**row, busy=busy, ratio=ratio)


def _number(value: float | str | None) -> float:
    assert isinstance(value, float | int)
    return float(value)
