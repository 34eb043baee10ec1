"""The pages as Markdown, and their index with thumbnails."""

from __future__ import annotations

import re

import torch

from robaudit.files import write_atomically
from tests.research.benchmarks.machine import machine
from tests.research.gallery.catalogue import PAGES
from tests.research.gallery.gallery import Content, Gallery, Page

_INDEX = "README.md"
_SURPRISE = re.compile(r"^> (.*)$", re.MULTILINE)


def write(gallery: Gallery, page: Page, content: Content) -> None:
    """Write a page, its thumbnail and the index; other pages stay as they are.

    Args:
        gallery: where to.
        page: the page.
        content: what its maker found.
    """
    first, _ = content.pictures[0]
    gallery.thumbnail(page.name, first)
    gallery.pages.mkdir(parents=True, exist_ok=True)
    write_atomically(gallery.pages / f"{page.name}.md", _page(page, content).encode())
    write_atomically(gallery.pages / _INDEX, _index(gallery).encode())


def _page(page: Page, content: Content) -> str:
    shown = [f"![{alt}]({name})" for name, alt in content.pictures]
    said = [f"- {sentence}" for sentence in content.sentences]
    specs = [
        f"`{name}.yaml`:\n\n```yaml\n{spec.rstrip()}\n```" for name, spec in content.specs.items()
    ]
    lines = [f"    {command}" for command in content.commands]
    parts = [
        f"# {page.title}",
        f"> {content.surprise}",
        content.about,
        *content.tables,
        *shown,
        "## What it shows",
        "\n".join(said),
        "## Make it again",
        "\n".join(lines),
        *specs,
        _measured_on(content),
        "[All pages of the gallery](README.md)",
    ]
    return "\n\n".join(parts) + "\n"


def _measured_on(content: Content) -> str:
    """Dates, hardware and seconds of the audits."""
    about = machine(torch.device("cpu"))
    spent = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in content.seconds.items())
    dates = " and ".join(sorted(content.dates))
    return f"*{dates}; {about['cpu']}, one used, torch {about['torch']}. The audits took: {spent}.*"


def _index(gallery: Gallery) -> str:
    rows = []
    for page in PAGES.values():
        path = gallery.pages / f"{page.name}.md"
        if not path.exists():
            continue
        surprise = _SURPRISE.search(path.read_text(encoding="utf-8"))
        words = surprise[1] if surprise else ""
        picture = f"[![{page.title}]({page.name}-small.png)]({page.name}.md)"
        rows.append(f"| {picture} | **[{page.title}]({page.name}.md)**<br>{words} |")
    table = "\n".join(["| | |", "|---|---|", *rows])
    return f"""# Gallery

What robaudit finds on networks that others have trained: a page each of numbers with intervals, two
pictures, and what is surprising in them.

{table}

    make gallery                    # all pages; interrupted, it continues later
    make gallery ONLY=photos        # one of them

It reads networks and images in `../shared`, beside a clone of the project, and keeps its runs in
`build/gallery`. Each page has its specs (files in the top folder of the clone) and its commands, so
that you can put your own model in their place. Intervals are 95 %, for images like these unless a
page says otherwise. No page shows images of the data sets.
"""
