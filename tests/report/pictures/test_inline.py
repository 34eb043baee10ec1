"""A picture inside an HTML page: its own ids, the page's colours, harmless text."""

from __future__ import annotations

import re
import warnings
from xml.etree import ElementTree as Xml

import pytest

from robaudit.errors import RobauditError
from robaudit.report.pictures.kinds import INLINE, Choice, inline_picture, sketch_of
from robaudit.report.pictures.page import page
from tests.report.pictures.made import HOSTILE, row, run, usual

pytest.importorskip("matplotlib")
KINDS = ("distribution", "bias", "agreement", "cost")


@pytest.fixture(scope="module")
def pictures() -> dict[str, str]:
    made = usual(12)
    return {kind: inline_picture(kind, made, Choice())[0] for kind in KINDS} | {
        "again": inline_picture("bias", made, Choice())[0],
        "other": inline_picture("bias", made, Choice(sigmas=(0.05,)))[0],
    }


def _ids(svg: str) -> list[str]:
    return re.findall(r'\sid="([^"]*)"', svg)


@pytest.mark.parametrize("kind", KINDS)
def test_it_has_a_view_box_a_title_and_no_size(pictures: dict[str, str], kind: str) -> None:
    root = Xml.fromstring(pictures[kind])  # noqa: S314
    assert pictures[kind].startswith("<svg ")
    assert root.get("viewBox")
    assert root.get("role") == "img"
    assert {"width", "height"}.isdisjoint(root.attrib)
    assert root[0].tag == "{http://www.w3.org/2000/svg}title"
    assert root.get("aria-labelledby") == root[0].get("id")
    assert root[0].text


@pytest.mark.parametrize("kind", KINDS)
def test_it_takes_the_fonts_and_colours_of_the_page(pictures: dict[str, str], kind: str) -> None:
    svg = pictures[kind]
    for name in ("ink", "faint", "grid"):
        assert f"var(--{name}, #" in svg
    for colour in ("#fcfcfa", "#22262b", "#5b626b", "#e4e6e8"):
        assert re.sub(r"var\(--\w+, #\w+\)", "", svg).count(colour) == 0
    assert "font-family: inherit" in svg
    assert "DejaVu" not in svg
    assert "<text" in svg


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_leads_out_of_it(pictures: dict[str, str], kind: str) -> None:
    svg = pictures[kind]
    for word in ("<metadata", "rdf", "<style", "<script", "<?xml", "<!DOCTYPE", "xlink"):
        assert word not in svg
    assert re.findall(r"https?://[^\"' )]*", svg) == ["http://www.w3.org/2000/svg"]
    known = set(_ids(svg))
    used = re.findall(r'href="#([^"]*)"', svg) + re.findall(r"url\(#([^)]*)\)", svg)
    assert set(used) <= known


def test_pictures_on_a_page_share_no_ids_and_come_out_the_same_again(pictures: dict[str, str]) -> None:
    assert pictures["again"] == pictures["bias"]
    everything = [name for kind in (*KINDS, "other") for name in _ids(pictures[kind])]
    assert len(everything) == len(set(everything))
    assert everything


@pytest.mark.parametrize("kind", KINDS)
def test_its_caption_is_text_beside_it_and_leaves_no_room_in_it(kind: str) -> None:
    made = usual(12)
    svg, caption = inline_picture(kind, made, Choice())
    sketch = sketch_of(kind, made, Choice())
    assert caption == sketch.caption
    height, whole = (page(sketch, INLINE, caption=with_caption)[0][1] for with_caption in (False, True))
    assert height < whole - 0.25  # inches
    root = Xml.fromstring(svg)  # noqa: S314
    assert float((root.get("viewBox") or "").split()[3]) == pytest.approx(72 * height, abs=0.01)
    assert caption[:30] not in svg
    assert root[0].text == sketch.title


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robaudit.report.pictures.find_spec", lambda _: None)
    with pytest.raises(RobauditError, match="the picture bias: matplotlib is not installed; pip install"):
        inline_picture("bias", usual(4), Choice())


def test_text_from_data_is_text_and_nothing_else() -> None:
    rows = [row(i, 0.1 * (i % 6), label=i % 6, predicted=i % 6) for i in range(12)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        svg, _ = inline_picture("bias", run(rows, names=HOSTILE), Choice())
    root = Xml.fromstring(svg)  # noqa: S314
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags <= {"svg", "title", "desc", "defs", "g", "path", "text", "tspan", "clipPath", "rect", "use"}
    words = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "0 ($\\frac{1}{0}$)" in words  # no formula
    assert any("</svg><script>" in word for word in words)
    assert all(word.isprintable() for word in words)
    assert not any(key.startswith("on") for element in root.iter() for key in element.attrib)
