"""A picture inside an HTML page: its own ids, the page's colours, harmless text."""

from __future__ import annotations

import re
import warnings
from xml.etree import ElementTree as Xml

import pytest

from robaudit.errors import RobauditError
from robaudit.report import pictures as pictures_module
from robaudit.report.pictures.kinds import Choice, inline_picture, inline_svg, sketch_of
from robaudit.store.run import Run
from tests.curve_rows import pictured as curves_pictured
from tests.levels import sigma
from tests.radius_rows import pictured
from tests.report.pictures.made import HOSTILE, losses, row, run, usual

pytest.importorskip("matplotlib")
KINDS = ("distribution", "bias", "agreement", "cost", "loss-q", "radius", "heat-map", "corruption-kept", "curves")


@pytest.fixture(scope="module")
def pictures() -> dict[str, str]:
    made = usual(12)
    return {kind: inline_svg(kind, _made(kind)) for kind in KINDS} | {
        "again": inline_svg("bias", made),
        "other": inline_svg("bias", made, at=sigma(0.05)),
        "salted": inline_svg("cost", made, salt="2"),
    }


def _made(kind: str) -> Run:
    if kind in ("radius", "heat-map", "corruption-kept"):
        return pictured(12)
    if kind == "curves":
        return curves_pictured(12)
    return losses(12) if kind == "loss-q" else usual(12)


def _ids(svg: str) -> list[str]:
    return re.findall(r'\sid="([^"]*)"', svg)


@pytest.mark.parametrize("kind", KINDS)
def test_it_has_a_view_box_a_title_and_no_size(pictures: dict[str, str], kind: str) -> None:
    root = Xml.fromstring(pictures[kind])  # noqa: S314
    assert pictures[kind].startswith("<svg ")
    assert root.get("viewBox")
    assert root.get("role") == "img"
    assert {"width", "height"}.isdisjoint(root.attrib)
    title, desc = root[0], root[1]
    assert (title.tag, desc.tag) == ("{http://www.w3.org/2000/svg}title", "{http://www.w3.org/2000/svg}desc")
    assert (root.get("aria-labelledby"), root.get("aria-describedby")) == (title.get("id"), desc.get("id"))
    assert title.text
    assert desc.text


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
    everything = [name for kind in (*KINDS, "other", "salted") for name in _ids(pictures[kind])]
    assert len(everything) == len(set(everything))
    assert everything


@pytest.mark.parametrize("kind", KINDS)
def test_without_its_caption_it_is_lower_and_the_caption_is_text(pictures: dict[str, str], kind: str) -> None:
    made = _made(kind)
    svg, caption = inline_picture(kind, made, Choice())
    assert caption == sketch_of(kind, made, Choice()).caption
    root, whole = (Xml.fromstring(text) for text in (svg, pictures[kind]))  # noqa: S314
    boxes = [[float(end) for end in (one.get("viewBox") or "").split()] for one in (root, whole)]
    assert boxes[0][2] == boxes[1][2]
    assert boxes[0][3] < boxes[1][3] - 20
    assert caption[:30] not in svg
    assert caption[:30] in pictures[kind]
    assert "desc" not in svg
    assert root[0].text == whole[0].text


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures_module, "find_spec", lambda _: None)
    with pytest.raises(RobauditError, match="the picture bias: needs matplotlib, which is not installed; pip install"):
        inline_svg("bias", usual(4))


def test_text_from_data_is_text_and_nothing_else() -> None:
    rows = [row(i, 0.1 * (i % 6), label=i % 6, predicted=i % 6) for i in range(12)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        svg = inline_svg("bias", run(rows, names=HOSTILE))
    root = Xml.fromstring(svg)  # noqa: S314
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags <= {"svg", "title", "desc", "defs", "g", "path", "text", "tspan", "clipPath", "rect", "use"}
    words = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "$\\frac{1}{0}$" in words  # no formula
    assert any("</svg><script>" in word for word in words)


def test_ids_and_names_of_estimators_are_text_and_nothing_else() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        svg = inline_svg("loss-q", losses(6, ids=HOSTILE, estimators=HOSTILE[:3], attacks=HOSTILE[4:]))
    root = Xml.fromstring(svg)  # noqa: S314
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
        "svg",
        "title",
        "desc",
        "defs",
        "g",
        "path",
        "text",
        "clipPath",
        "rect",
        "use",
    }
    words = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "$\\frac{1}{0}$, mean" in words
    assert any("</svg><script>" in word for word in words)
    assert any(word.endswith("}$0") for word in words)
    assert all(word.isprintable() for word in words)
    assert not any(key.startswith("on") for element in root.iter() for key in element.attrib)
