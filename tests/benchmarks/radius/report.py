"""The page of the comparison with attack libraries, from the results that there are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from tests.benchmarks.machine import in_words
from tests.benchmarks.radius.libraries import Norm
from tests.benchmarks.radius.results import Found
from tests.benchmarks.report import Table

OURS = "robaudit"
_TIED = 1e-3  # relative: nearer than this is as near
_HEAD = Path(__file__).with_name("introduction.md").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Block:
    """What was found on a network in a norm.

    Attributes:
        network, norm: which.
        images: how many.
        found: by the label of the attack.
        missing: labels of attacks that were not run.
    """

    network: str
    norm: Norm
    images: int
    found: Mapping[str, Found]
    missing: Sequence[str] = ()

    def best(self) -> list[float]:
        """The nearest flip of each image by any attack."""
        return [min(radii) for radii in zip(*(one.radius for one in self.found.values()), strict=True)]

    def table(self) -> Table:
        """All attacks, the smallest median first."""
        best = self.best()
        rows = [_row(label, one, best) for label, one in sorted(self.found.items(), key=lambda item: median(item[1].radius))]
        headers = ["attack", "median", "mean", "not found", "nearest on", "gradients", "forwards", "seconds"]
        return Table(headers, rows, f"## {self.network}, {self.norm}, {self.images} images")

    def against_best(self, ours: str) -> list[str]:
        """One row of the summary: the libraries' smallest median, whatever it cost, and the search's smallest that costs no more (or its
        defaults, where all cost more).
        """
        others = {label: one for label, one in self.found.items() if not label.startswith(OURS)}
        label = min(others, key=lambda name: median(others[name].radius))
        theirs = others[label]
        fair = {name: one for name, one in self.found.items() if name.startswith(OURS) and one.gradients <= theirs.gradients}
        name = min(fair, key=lambda one: median(fair[one].radius)) if fair else ours
        mine = self.found[name]
        a, b = median(mine.radius), median(theirs.radius)
        nearer = fmean(x <= y * (1 + _TIED) for x, y in zip(mine.radius, theirs.radius, strict=True))
        met = "yes" if a < b and mine.gradients <= theirs.gradients else "**no**"
        cost = f"{mine.gradients:.0f}", f"{theirs.gradients:.0f}"
        return [f"{self.network}, {self.norm}", f"{a:.5g}", cost[0], label, f"{b:.5g}", cost[1], f"{a / b - 1:+.1%}", f"{nearer:.0%}", met]


def page(blocks: Sequence[Block], ours: str, versions: Mapping[str, str], machine: dict[str, str]) -> str:
    """The whole page.

    Args:
        blocks: with what was found; those without the search's own result are left out of the summary.
        ours: label of the search with its defaults.
        versions: of the libraries.
        machine: of the measurement.
    """
    installed = ", ".join(f"{name} {version}" for name, version in versions.items())
    headers = [
        "network, norm",
        "robaudit",
        "gradients",
        "best of the libraries",
        "median",
        "gradients",
        "difference",
        "as near or nearer on",
    ]
    rows = [block.against_best(ours) for block in blocks if ours in block.found and len(block.found) > 1]
    summary = Table(
        [*headers, "smaller for no more"],
        rows,
        "## The best attack of the libraries, and the best budget of ours that costs no more",
    )
    parts = [_HEAD, f"{in_words(machine, quick=False)} Libraries: {installed}.", summary.markdown()]
    for block in blocks:
        parts += [block.table().markdown()] if block.found else []
        parts += [f"Not run: {', '.join(block.missing)}."] if block.found and block.missing else []
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _row(label: str, one: Found, best: Sequence[float]) -> list[str]:
    reached = [r for r in one.radius if math.isfinite(r)]
    nearest = fmean(r <= b * (1 + _TIED) for r, b in zip(one.radius, best, strict=True))
    middle = median(one.radius)
    return [
        f"**{label}**" if label.startswith(OURS) else label,
        f"{middle:.5g}" if math.isfinite(middle) else "none",
        f"{fmean(reached):.5g}" if reached else "none",
        str(len(one.radius) - len(reached)),
        f"{nearest:.0%}",
        f"{one.gradients:.0f}",
        f"{one.forwards:.0f}",
        f"{one.seconds:.0f}",
    ]
