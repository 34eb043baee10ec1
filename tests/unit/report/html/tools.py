"""What the tests of reports share: hand-made runs, and what a reader sees of a page, section by
section."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from robaudit.runs.rows import Row
from robaudit.runs.run import Run
from tests.infos import run_info
from tests.rows import ROW

HOSTILE = ("<script>alert(1)</script>", 'a|b "q"\nc', "]](http://x) @me #1 `", "&amp;\x1b[31m")
VOID = {"meta", "img", "input", "br", "hr", "link"}
PLAIN = replace(ROW, sample_id="0", value=0.5, lower=0.4, upper=0.6, forwards=21)

DECISION: Mapping[str, Any] = {
    "gate": "mean >= 0.9",
    "verdict": "fail",
    "value": 0.5,
    "lower": 0.4,
    "upper": 0.6,
    "confidence": 0.95,
    "covers": "measurement",
    "about": "these 12 images",
    "threshold": 0.9,
}
"""A decided gate, as documents have it."""


def rows(values: Iterable[float], *, classes: int = 4, **fields: Any) -> tuple[Row, ...]:
    """A row for each value, of classes in turn, with an interval of 0.1 to both sides."""
    return tuple(
        replace(
            PLAIN,
            **{
                "sample_id": str(i),
                "label": i % classes,
                "predicted": i % classes,
                "value": value,
                "lower": value - 0.1,
                "upper": value + 0.1,
                **fields,
            },
        )
        for i, value in enumerate(values)
    )


def hand_made(results: Iterable[Row], **info: Any) -> Run:
    """A run with these rows, whose data set is nowhere."""
    held = tuple(results)
    spec = {
        "model": {"path": "m.pt"},
        "dataset": {"kind": "npz", "path": "gone.npz"},
        "noise": [{"kind": "gaussian", "name": "gaussian", "clip": False, "sigma": [0.1]}],
        "estimators": [{"name": "mc", "label": "mc", "options": {}}],
        "run": {"seed": 0},
    }
    probability = {"unit": "probability", "low": 0.0, "high": 1.0, "higher_is_better": True}
    log10 = {"unit": "log10 of a probability", "low": None, "high": 0.0, "higher_is_better": False}
    known = {
        "spec": spec,
        "data": {"labelled": len(held), "sha256": "1" * 64},
        "quantities": [{"name": "p_robust", **probability}, {"name": "log10_p_fail", **log10}],
        "clean_accuracy": {"value": 1.0, "count": 2, "total": 2, "lower": 0.15, "upper": 1.0},
        "totals": {"samples": len(held), "forwards": 10, "backwards": 0},
    }
    return Run(Path("/nowhere/run"), run_info(**{**known, **info}), held)


@dataclass
class Page(HTMLParser):
    """What stands in a page.

    Attributes:
        texts: what a reader sees, by the id of the innermost section.
        tags: every tag with its attributes.
        open: tags that were not closed.
        tables: the lines of each table, cell by cell, by its caption; the first are the heads.
    """

    texts: dict[str, list[str]] = field(default_factory=dict)
    tags: list[tuple[str, Mapping[str, str | None]]] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    tables: dict[str, list[list[str]]] = field(default_factory=dict)
    _sections: list[str] = field(default_factory=list)
    _lines: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    @classmethod
    def of(cls, text: str) -> Page:
        """The page, read."""
        page = cls()
        page.feed(text)
        page.close()
        return page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "section":
            self._sections.append(dict(attrs).get("id") or "")
        elif tag == "table":
            caption = dict(attrs).get("aria-label") or ""
            if caption in self.tables:  # sections may have tables of the same result
                self.tables[f"{caption} (earlier)"] = self.tables[caption]
            self._lines = self.tables[caption] = []
        elif tag == "tr":
            self._lines.append([])
        elif tag in ("th", "td"):
            self._lines[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "section":
            self._sections.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("th", "td"):
            self._lines[-1][-1] += data.replace("\xa0", " ")
        if data.strip() and self.open[-1] != "style":
            self.texts.setdefault(self._sections[-1] if self._sections else "", []).append(
                " ".join(data.split())
            )

    def text(self, section: str) -> str:
        """What is read in a section, parts joined by a space."""
        return " ".join(self.texts.get(section, []))

    def count(self, tag: str, **attributes: str) -> int:
        """How many tags have these attributes (``class_`` is one word of the class)."""
        wanted = {key.rstrip("_"): value for key, value in attributes.items()}
        return sum(
            found == tag
            and all(
                value in (attrs.get(key) or "").split()
                if key == "class"
                else attrs.get(key) == value
                for key, value in wanted.items()
            )
            for found, attrs in self.tags
        )
