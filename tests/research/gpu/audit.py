"""Part `audit`: a whole audit from the command line, its start-up apart."""

from __future__ import annotations

import tempfile
from pathlib import Path

from robaudit.stats.reading import read_run
from tests.research.gpu import command
from tests.research.gpu.networks import RESNET18
from tests.research.gpu.part import Part, Row
from tests.research.gpu.trace import Load

START = "start-up: a copy of each of 16 images"
ONE = "one process"
_DRAWS = (1000, 500, 250, 120, 60, 30)
# Of the time that is left: passes in an audit are slower than those of mc alone, and the next part
# does as many again.
_SHARE = 0.5


def measure(part: Part) -> None:
    """The start-up, then the audit with as many copies of each image as there is time for."""
    images = 40 if part.tiny else 2000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few = command.spec(folder, part, 16, 1, "few")
        (start,) = command.at_once([command.estimate(few, "few", part)], folder, part.clock.left())
        part.add(what=START, images=16, draws=1, seconds=start)
        draws = affordable(part, images, start)
        if draws < _DRAWS[0] and not part.tiny:
            part.left_out.append(f"copies of an image beyond {draws}: no time for 1,000")
        spec = command.spec(folder, part, images, draws)
        with Load() as load:
            (taken,) = command.at_once(
                [command.estimate(spec, "audit", part)], folder, part.clock.left()
            )
        passes = read_run(folder / "audit").info.totals.forwards
        busy = load.mean(after=start) if part.on_card else None
        part.add(**figures(ONE, images, draws, passes, taken, start), busy=busy)


def figures(what: str, images: int, draws: int, passes: int, seconds: float, start: float) -> Row:
    """The row of an audit: what it computed after its start-up."""
    # An audit may end before a slower start-up would: then it says nothing.
    computing = seconds - start
    rate = passes / computing if computing > 0 else None
    return {
        "what": what,
        "images": images,
        "draws": draws,
        "passes": passes,
        "seconds": seconds,
        "rate": rate,
    }


def affordable(part: Part, images: int, start: float) -> int:
    """Copies of each image that an audit can take in the time that is left."""
    if part.tiny:
        return _DRAWS[-1]
    rates = [
        float(row["mc"] or 0.0)
        for row in part.earlier.get("passes", [])
        if str(row["network"]).startswith(RESNET18) and row["precision"] == "fp32" and "mc" in row
    ]
    if not rates:
        return _DRAWS[2]
    room = _SHARE * (part.clock.left() - start) * rates[0]
    return next((draws for draws in _DRAWS if images * draws <= room), _DRAWS[-1])
