"""`python -m tests.research.site FOLDER` builds the pages of docs/ as a site, with a reference of
the public Python API from the docstrings. A link that leads nowhere, a page that no list names, or
a docstring that cannot be read ends it. `make docs` does it."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import robaudit

ROOT = Path(__file__).parents[2]
# The pages by chapter, in reading order. Pages that are not named follow in alphabetical order.
_CHAPTERS = {
    "Start": ("docs/gallery/README", "docs/tutorial", "docs/model-and-data", "docs/camera"),
    "Use": (
        "docs/noise",
        "docs/estimators",
        "docs/report",
        "docs/gates",
        "docs/compare",
        "docs/python",
        "docs/validate",
        "docs/plot",
        "docs/scale",
        "docs/training",
        "docs/trust",
        "docs/plugins",
    ),
    "Reference": (
        "docs/commands",
        "docs/spec",
        "docs/output",
        "api",
        "docs/glossary",
        "docs/stability",
        "configs/README",
        "CHANGELOG",
    ),
    "Research": (),
    "Papers": ("docs/papers/README",),
    "For developers": ("docs/design", ".github/CONTRIBUTING", ".github/SECURITY"),
}
_FOLDERS = {"docs/gallery": "Start", "docs/research": "Research", "docs/papers": "Papers"}
_COPIED = ("README.md", "CHANGELOG.md", "LICENSE", "docs", "configs", ".github")
_STAR = re.compile(r"(?<![*`\\])\*(?!\*)")
_LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def build(output: Path) -> int:
    """Build the site into a folder; 0 if every link leads somewhere."""
    from sphinx.application import Sphinx

    settings = {
        "project": "robaudit",
        "version": robaudit_version(),
        "root_doc": "README",
        "extensions": ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"],
        "myst_heading_anchors": 4,
        "myst_enable_extensions": ["attrs_inline"],
        "napoleon_use_ivar": True,
        "napoleon_custom_sections": [("Class attributes", "params_style")],
        "autodoc_typehints": "description",
        "autodoc_member_order": "bysource",
        "html_theme": "furo",
        "html_title": "robaudit",
        "html_copy_source": False,
        "include_patterns": ["**"],
        "exclude_patterns": ["**/*.ipynb", ".github/pull_request_template.md"],
        # Words of docstrings such as :class:`Result` need not be pages.
        "nitpicky": False,
    }
    with tempfile.TemporaryDirectory(prefix="robaudit-site-") as temporary:
        stage = Path(temporary) / "pages"
        _stage(stage)
        app = Sphinx(
            srcdir=stage,
            confdir=None,
            outdir=output,
            doctreedir=Path(temporary) / "trees",
            buildername="html",
            confoverrides=settings,
            status=None,
            warning=sys.stderr,
            warningiserror=True,
            keep_going=True,
        )
        # Before napoleon, whose own priority is 500.
        app.connect("autodoc-process-docstring", _escape_stars, priority=400)
        app.build()
    return app.statuscode


def _escape_stars(*arguments: Any) -> None:
    """Escape the stars of shapes such as (n, *shape), which reStructuredText takes for emphasis."""
    lines: list[str] = arguments[-1]
    lines[:] = [_STAR.sub(r"\\*", line) for line in lines]


def robaudit_version() -> str:
    """The version, from the one place that has it."""
    from importlib.metadata import version

    return version("robaudit")


def _stage(stage: Path) -> None:
    """Copy the pages, and add what only the site needs."""
    stage.mkdir()
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, stage / name)
        else:
            shutil.copy(source, stage / name)
    for page in (stage / "docs").rglob("*.md"):
        _copy_linked(page, stage)
    (stage / "api.md").write_text(_reference(), encoding="utf-8")
    chapters = "\n".join(_lists(stage))
    start = stage / "README.md"
    start.write_text(f"{start.read_text(encoding='utf-8')}\n{chapters}", encoding="utf-8")


def _copy_linked(page: Path, stage: Path) -> None:
    """Copy the files of the repository that a page links to; a folder becomes its page, or plain
    text without one."""

    def followed(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        if "://" in target:
            return match[0]
        place = (page.parent / target).resolve()
        source = ROOT / place.relative_to(stage.resolve())
        if source.is_dir():
            # The nearest page about it: a site has no page for a folder.
            index = next(
                folder / "README.md"
                for folder in (place, *place.parents)
                if (folder / "README.md").exists()
            )
            return f"]({os.path.relpath(index, page.parent)})"
        if not place.exists() and source.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, place)
        return f"]({target}{anchor})"

    page.write_text(_LINK.sub(followed, page.read_text(encoding="utf-8")), encoding="utf-8")


def _lists(stage: Path) -> Iterator[str]:
    """A hidden list of pages for each chapter, as the navigation shows them."""
    named = {page for pages in _CHAPTERS.values() for page in pages}
    everything = sorted(
        path.relative_to(stage).with_suffix("").as_posix()
        for path in stage.rglob("*.md")
        if path.name != "pull_request_template.md"
    )
    for chapter, pages in _CHAPTERS.items():
        others = [
            page
            for page in everything
            if page not in named and _FOLDERS.get(page.rpartition("/")[0]) == chapter
        ]
        yield "```{toctree}\n:hidden:\n:caption: " + chapter + "\n"
        yield from (page for page in (*pages, *others) if page in everything)
        yield "```\n"
    rest = [
        page
        for page in everything
        if page not in named and page != "README" and page.rpartition("/")[0] not in _FOLDERS
    ]
    # The map of docs/ and pages of the repository alone: found by links and by search.
    yield "```{toctree}\n:hidden:\n"
    yield from rest
    yield "```\n"


def _reference() -> str:
    """The page of the public Python API."""
    lines = ["# Python API", "", "Everything that `import robaudit` offers.", ""]
    for name in robaudit.__all__:
        value = getattr(robaudit, name)
        if not callable(value):
            # A quantity: its docstring is that of its class.
            lines += [f"## {name}", "", f"{type(value).__name__}: {value.meaning}", ""]
            continue
        directive = "autofunction"
        if isinstance(value, type):
            directive = "autoexception" if issubclass(value, BaseException) else "autoclass"
        lines += [f"## {name}", "", "```{eval-rst}", f".. {directive}:: robaudit.{name}"]
        if directive == "autoclass":
            lines.append("   :members:")
        lines += ["```", ""]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the site."""
    parser = argparse.ArgumentParser(prog="python -m tests.research.site", description=__doc__)
    parser.add_argument("folder", type=Path, help="of the site")
    given = parser.parse_args(arguments)
    code = build(given.folder.absolute())
    if code == 0:
        print(f"{given.folder / 'README.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
