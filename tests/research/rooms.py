"""Draw docs/rooms.svg: the rooms of the package as layers, and the families above them, from the
imports.

python -m tests.research.rooms

An arrow is an import. Left out are arrows that follow from others: a room that imports `runs`
reaches what `runs` imports. Families have no arrows, as they may import every room; their boxes
name the groups of entry points that they are found by, and families that they use. Imports upwards
are mistakes, which tests/test_layout.py reports.
"""

from __future__ import annotations

import ast
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from itertools import pairwise
from pathlib import Path

from tests import test_layout as layout

PATH = layout.PACKAGE.parent / "docs" / "rooms.svg"
GROUND = "ground"
FAMILIES = "methods"
_TOGETHER = {**dict.fromkeys(layout.ROOMS[0], GROUND), "pytest": "cli"}
"""Modules that are drawn as one box."""
_ABOVE = (
    "Families, in robaudit/methods. They may import every room below; no room imports a "
    "family: it finds them by entry points."
)
_ABOUT_GROUND = "Errors, names, quantities, files, progress, plugins"

Graph = Mapping[str, frozenset[str]]

# of a box; and of an arrow that passes a layer
_WIDTH = 176
_HEIGHT = 52
_LANE = 26
_ACROSS = 16
_BETWEEN = 26
_MARGIN = 24
# the height of a family's box, and of a line of text
_FAMILY = 86
_LINE = 13
_BAND = _FAMILY + 44  # the families, with the line above them
_STYLE = """
.page { fill: #ffffff; stroke: #d0d7de }
.band { fill: #f3f6fa; stroke: #d0d7de }
.box { fill: #ffffff; stroke: #57606a }
.family { fill: #e7f0fd; stroke: #2f6fc4 }
.arrow { fill: none; stroke: #8c959f; stroke-width: 1.3 }
.head { fill: #8c959f }
.name { font: 600 13px sans-serif; fill: #1f2328 }
.text { font: 11px sans-serif; fill: #424a53 }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117; stroke: #30363d }
  .band { fill: #161b22; stroke: #30363d }
  .box { fill: #21262d; stroke: #8b949e }
  .family { fill: #14294a; stroke: #4f8fe6 }
  .name { fill: #f0f6fc }
  .text { fill: #c9d1d9 }
}
"""


def imports() -> Graph:
    """What each box imports from lower floors, or of another family; families are named
    ``methods.radius``."""
    found: dict[str, set[str]] = {GROUND: set()}
    for path in layout.FILES:
        where = path.relative_to(layout.PACKAGE).with_suffix("")
        box = _box(where.parts)
        if box is None:
            continue
        others = {_box(name.split(".")[1:]) for _, name in layout.imported(path)} - {box, None}
        found.setdefault(box, set()).update(
            other for other in others if other and _floor(other) <= _floor(box)
        )
    return {box: frozenset(others) for box, others in found.items()}


def _box(parts: Iterable[str]) -> str | None:
    """The box of a module; None for the package itself."""
    room, *inside = *parts, ""
    if room != FAMILIES:
        return _TOGETHER.get(room, room) or None
    family = inside[0]
    return f"{FAMILIES}.{family}" if family not in ("", "__init__") else None


def _floor(box: str) -> int:
    room = box.partition(".")[0]
    return 0 if room == GROUND else layout.FLOOR[room]


def reduced(graph: Graph) -> Graph:
    """The graph without the edges that follow from others."""
    return {
        box: frozenset(other for other in others if not _leads(graph, others - {other}, other))
        for box, others in graph.items()
    }


def _leads(graph: Graph, starts: Iterable[str], end: str) -> bool:
    return any(end in graph[start] or _leads(graph, graph[start], end) for start in starts)


def layers_of(graph: Graph) -> list[list[str]]:
    """Boxes by the longest way to the ground."""
    level: dict[str, int] = {}
    for box in sorted(graph, key=_floor):
        level[box] = 1 + max((level[other] for other in graph[box]), default=-1)
    return [
        sorted(box for box in graph if level[box] == number)
        for number in range(1 + max(level.values()))
    ]


class _Picture:
    """The layout: boxes and the lanes of long arrows, layer by layer, in the order of the middle of
    what they are joined to."""

    def __init__(self, graph: Graph) -> None:
        self.layers = layers_of(graph)
        level = {box: number for number, layer in enumerate(self.layers) for box in layer}
        self.ways: list[list[str]] = []
        for box, others in sorted(graph.items()):
            for other in sorted(others):
                lanes = [
                    f"{box} > {other} @{number}"
                    for number in range(level[box] - 1, level[other], -1)
                ]
                for lane in lanes:
                    self.layers[int(lane.rpartition("@")[2])].append(lane)
                self.ways.append([box, *lanes, other])
        self._joined: dict[str, list[str]] = {}
        for one, other in (pair for way in self.ways for pair in pairwise(way)):
            self._joined.setdefault(one, []).append(other)
            self._joined.setdefault(other, []).append(one)
        self.width = 5 * (_WIDTH + _ACROSS) - _ACROSS + 2 * _MARGIN
        self.height = self.top(0) + _HEIGHT + _MARGIN
        self.middle = self._arranged()

    def top(self, number: int) -> float:
        """The upper edge of a layer's boxes."""
        return _BAND + 2 * _MARGIN + (len(self.layers) - 1 - number) * (_HEIGHT + _BETWEEN)

    def _arranged(self) -> dict[str, float]:
        """The horizontal middle of everything."""
        middle: dict[str, float] = {}
        best = middle
        crossings = float("inf")
        for sweep in range(24):
            order = self.layers if sweep % 2 == 0 else self.layers[::-1]
            for layer in order:
                layer.sort(key=lambda one: (self._wanted(one, middle), one))
                middle |= self._spread(layer)
            if (now := self._crossings(middle)) < crossings:
                best = dict(middle)
                crossings = now
        return best

    def _wanted(self, one: str, middle: Mapping[str, float]) -> float:
        known = [middle[other] for other in self._joined.get(one, ()) if other in middle]
        return sum(known) / len(known) if known else self.width / 2

    def _wide(self, layer: list[str]) -> float:
        return sum(_wide(one) + _ACROSS for one in layer) - _ACROSS

    def _spread(self, layer: list[str]) -> dict[str, float]:
        x = (self.width - self._wide(layer)) / 2
        middles = {}
        for one in layer:
            middles[one] = x + _wide(one) / 2
            x += _wide(one) + _ACROSS
        return middles

    def _crossings(self, middle: Mapping[str, float]) -> float:
        """How many pairs of arrows cross between two layers; with equal numbers, shorter arrows are
        better."""
        steps = [(one, other) for way in self.ways for one, other in pairwise(way)]
        layer_of = {one: number for number, layer in enumerate(self.layers) for one in layer}
        found = 0.0
        for i, (a, b) in enumerate(steps):
            found += abs(middle[a] - middle[b]) / 1e5
            for c, d in steps[:i]:
                same = layer_of[a] == layer_of[c]
                found += same and (middle[a] - middle[c]) * (middle[b] - middle[d]) < 0
        return found


def _wide(one: str) -> float:
    return _LANE if "@" in one else _WIDTH


def svg() -> str:
    """The whole picture."""
    graph = imports()
    families = sorted(box for box in graph if box.startswith(FAMILIES))
    picture = _Picture(
        reduced({box: others for box, others in graph.items() if box not in families})
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {picture.width:g} '
        f'{picture.height:g}" role="img">',
        "<title>The rooms of robaudit: each imports only what is below it</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{picture.width - 1:g}" '
        f'height="{picture.height - 1:g}" rx="8"/>',
        f'<rect class="band" x="10" y="10" width="{picture.width - 20:g}" height="{_BAND}" '
        'rx="6"/>',
        f'<text class="text" x="{_MARGIN}" y="30">{_ABOVE}</text>',
    ]
    groups = groups_of_families()
    for number, family in enumerate(families):
        middle = _MARGIN + number * (_WIDTH + _ACROSS) + _WIDTH / 2
        used = ", ".join(
            other.rpartition(".")[2] for other in sorted(graph[family].intersection(families))
        )
        further = [
            *textwrap.wrap(", ".join(groups.get(family, ())), 29),
            *([f"uses {used}"] if used else []),
        ]
        lines += _drawn(family, middle, 42, further)
    lines += _arrows(picture)
    for number, layer in enumerate(picture.layers):
        for box in layer:
            if "@" not in box:
                lines += _drawn(box, picture.middle[box], picture.top(number))
    return "\n".join([*lines, "</svg>", ""])


def groups_of_families() -> Mapping[str, list[str]]:
    """The groups of entry points that each family is found by: ``estimators``, ``sections``, ..."""
    project = tomllib.loads((layout.PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    found: dict[str, list[str]] = {}
    for group, points in project["entry-points"].items():
        for family in dict.fromkeys(
            _box(value.partition(":")[0].split(".")[1:]) for value in points.values()
        ):
            found.setdefault(family or "", []).append(group.rpartition(".")[2])
    return found


def _arrows(picture: _Picture) -> Iterator[str]:
    """A smooth line from the lower edge of a box to the upper edge of another, straight through the
    lanes on its way."""
    layer_of = {one: number for number, layer in enumerate(picture.layers) for one in layer}
    for way in picture.ways:
        path = f"M{picture.middle[way[0]]:.1f},{picture.top(layer_of[way[0]]) + _HEIGHT:g}"
        for one, other in pairwise(way):
            start = picture.middle[one]
            end = picture.middle[other]
            above = picture.top(layer_of[one]) + _HEIGHT
            below = picture.top(layer_of[other])
            bend = (below - above) / 2
            path += f" C{start:.1f},{above + bend:g} {end:.1f},{below - bend:g} {end:.1f},{below:g}"
            if "@" in other:
                path += f" V{below + _HEIGHT:g}"
        yield f'<path class="arrow" d="{path}"/>'
        tip = picture.middle[way[-1]]
        edge = picture.top(layer_of[way[-1]])
        yield f'<path class="head" d="M{tip:.1f},{edge:g} l-4,-8 h8 z"/>'


def _drawn(box: str, middle: float, top: float, further: Iterable[str] = ()) -> Iterator[str]:
    """A box with its name, the beginning of its docstring, and further lines."""
    name = box.rpartition(".")[2]
    kind, height = ("family", _FAMILY) if box.startswith(FAMILIES) else ("box", _HEIGHT)
    yield (
        f'<rect class="{kind}" x="{middle - _WIDTH / 2:.1f}" y="{top:g}" width="{_WIDTH}" '
        f'height="{height}" rx="5"/>'
    )
    yield (
        f'<text class="name" text-anchor="middle" x="{middle:.1f}" '
        f'y="{top + 16:g}">{escape(name)}</text>'
    )
    for number, text in enumerate([*textwrap.wrap(about(box), 27), *further], start=1):
        yield (
            f'<text class="text" text-anchor="middle" x="{middle:.1f}" '
            f'y="{top + 17 + _LINE * number:g}">{escape(text)}</text>'
        )


def about(box: str) -> str:
    """What a room is about: its docstring up to the first comma, colon, semicolon, bracket or full
    stop."""
    if box == GROUND:
        return _ABOUT_GROUND
    text = (
        ast.get_docstring(
            ast.parse(
                (layout.PACKAGE / Path(*box.split(".")) / "__init__.py").read_text(encoding="utf-8")
            )
        )
        or ""
    )
    ends = [text.find(mark) for mark in (",", ":", ";", " (", ".") if mark in text]
    return text[: min(ends, default=len(text))]


if __name__ == "__main__":
    PATH.write_text(svg(), encoding="utf-8")
