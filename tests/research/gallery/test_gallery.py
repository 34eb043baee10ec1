"""The gallery: its index names every page, every page is whole, and sentences follow numbers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.research.gallery import __main__ as command
from tests.research.gallery.catalogue import PAGES
from tests.research.gallery.gallery import (
    Content,
    ContradictionError,
    Gallery,
    Page,
    mean_difference,
)
from tests.research.gallery.pages import write
from tests.shared import SHARED, needs_shared

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "gallery"
LARGEST = 150_000
"""Bytes of a picture."""


def test_the_index_has_every_page_and_its_thumbnail() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name, page in PAGES.items():
        assert f"[![{page.title}]({name}-small.png)]({name}.md)" in index
    assert {path.stem for path in FOLDER.glob("*.md")} == {"README", *PAGES}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole(name: str) -> None:
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {PAGES[name].title}\n\n> ")
    said = text.partition("## What it shows")[2].partition("## Make it again")[0]
    assert len(re.findall(r"^- ", said, re.MULTILINE)) == 5
    assert len(re.findall(r"^!\[.+\]\(.+\.png\)$", text, re.MULTILINE)) == 2
    assert re.search(r"\d \[\d", text), "no number has an interval"
    assert re.search(r"^\*\d{4}-\d\d-\d\d; .*The audits took: .*\d s", text, re.MULTILINE)
    assert str(SHARED) not in text


def test_every_picture_is_shown_and_small() -> None:
    shown = set()
    for page in FOLDER.glob("*.md"):
        shown |= set(re.findall(r"\]\((\S+\.png)\)", page.read_text(encoding="utf-8")))
    files = {path.name for path in FOLDER.glob("*.png")}
    assert shown == files
    assert {name for name in files if (FOLDER / name).stat().st_size > LARGEST} == set()


def test_a_page_is_not_written_with_a_sentence_that_its_numbers_contradict() -> None:
    content = Content()
    content.say("One is less than two.", if_=1 < 2)
    with pytest.raises(ContradictionError, match="Two is less than one"):
        content.say("Two is less than one.", if_=2 < 1)
    assert content.sentences == ["One is less than two."]


def size(path: Path) -> tuple[int, int]:
    """Width and height of a picture."""
    with Image.open(path) as picture:
        return picture.size


def test_a_page_of_a_picture_and_a_sentence(tmp_path: Path) -> None:
    wide = tmp_path / "wide.png"
    Image.new("RGB", (2100, 900), "white").save(wide)

    def make(gallery: Gallery) -> Content:
        content = Content(about="About.", surprise="A surprise.")
        gallery.picture(content, "photos-wide", wide, "A picture")
        content.say("A sentence.")
        return content

    gallery = Gallery(tmp_path / "runs", tmp_path / "pages")
    page = Page("photos", "A title", make)
    write(gallery, page, make(gallery))
    text = (gallery.pages / "photos.md").read_text(encoding="utf-8")
    assert text.startswith("# A title\n\n> A surprise.\n\nAbout.\n\n![A picture](photos-wide.png)")
    assert "- A sentence.\n" in text
    assert size(gallery.pages / "photos-wide.png") == (940, 403)
    assert size(gallery.pages / "photos-small.png") == (360, 232)
    index = (gallery.pages / "README.md").read_text(encoding="utf-8")
    assert index.count("A surprise.") == 1
    assert "(bias.md)" not in index


def test_a_mean_difference_is_of_the_same_images() -> None:
    first = np.linspace(0, 1, 50)
    found = mean_difference(first, first + 0.1)
    assert found.value == pytest.approx(0.1)
    assert found.ends == pytest.approx((0.1, 0.1))


def test_without_the_shared_folder_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "SHARED", tmp_path / "absent")
    assert command.main(["--pages", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("skipped: ../shared is not there")


def test_an_unknown_page_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["photographs"])
    assert "no page is called photographs" in capsys.readouterr().err


@pytest.mark.slow
@needs_shared
def test_a_page_is_made_from_the_beginning(tmp_path: Path) -> None:
    folders = ["--out", str(tmp_path / "runs"), "--pages", str(tmp_path / "pages")]
    assert command.main(["bias", *folders]) == 0
    text = (tmp_path / "pages" / "bias.md").read_text(encoding="utf-8")
    assert "ResNet20 sees frogs" in text
