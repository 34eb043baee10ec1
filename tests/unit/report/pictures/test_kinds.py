"""Every picture: drawn from one run and from several, with all words, the same every time."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from xml.etree import ElementTree as Xml

import pytest
from PIL import Image

from robaudit.errors import RobauditError
from robaudit.report import pictures as pictures_module
from robaudit.report.pictures import KINDS
from robaudit.report.pictures.kinds import entries_of, figure_of, inline, look_of, picture, sketch_of
from robaudit.report.pictures.page import Sketch, shorter, told_apart
from robaudit.report.sections import Ask
from robaudit.store.run import Run
from tests.unit.report.pictures.made import HOSTILE

pytest.importorskip("matplotlib")
LABELS = ("first of all", "second of all", "third of all")
ONE_RESULT = ("noise_tolerance", "pgd")


def asked(kind: str, runs: int = 1, **others: object) -> Ask:
    others.setdefault("label", LABELS[:runs] if runs > 1 else ())
    return Ask(estimators=ONE_RESULT if kind == "scatter" else (), **others)  # type: ignore[arg-type]


def drawn(kind: str, made: Run, runs: int = 1) -> Sketch:
    ask = asked(kind, runs)
    return sketch_of(kind, entries_of(kind, [made] * runs, ask), ask)


def words(svg: str) -> list[str]:
    return ["".join(element.itertext()) for element in Xml.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314


@pytest.fixture(scope="module")
def inlined(made: Run) -> Callable[[str], tuple[str, str]]:
    """A picture of one run for a page, drawn once, and its caption."""

    def draw(kind: str) -> tuple[str, str]:
        ask = asked(kind)
        return inline(kind, entries_of(kind, [made], ask), ask)

    return cache(draw)


@pytest.mark.parametrize(
    ("kind", "ending"), [("levels", "svg"), ("flagged", "svg"), ("scatter", "svg"), ("levels", "png"), ("levels", "pdf")]
)
def test_it_is_a_file_and_the_same_one_whatever_the_settings_of_the_user(
    made: Run, kind: str, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib as mpl

    sketch = drawn(kind, made)
    first = picture(sketch, ending, look_of(7.0))
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "none", "pdf.fonttype": 3, "text.parse_math": True}):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
        assert picture(sketch, ending, look_of(7.0)) == first
        assert mpl.rcParams["font.size"] == 30
    if ending == "png":
        assert Image.open(io.BytesIO(first)).size[0] == 7 * 300
    elif ending == "svg":
        assert Xml.fromstring(first).get("width") == "504pt"  # noqa: S314
        assert b"<text" not in first  # letters are outlines: no font is needed
        assert b"Date" not in first
    else:
        assert b"/FontFile2" in first


@pytest.mark.parametrize("kind", KINDS)
def test_it_takes_several_runs_at_the_width_of_a_column(made: Run, kind: str) -> None:
    ask = asked(kind, 3)
    found = entries_of(kind, [made] * 3, ask)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        svg, caption = inline(kind, found, ask)
        data = picture(sketch_of(kind, found, ask), "svg", look_of(3.3, title=False, caption=False))
    assert Xml.fromstring(data).get("width") == "237.6pt"  # noqa: S314
    told = " ".join([*words(svg), caption])
    assert all(label in told for label in LABELS), told
    assert "font: 7" not in svg


@pytest.mark.parametrize("kind", KINDS)
def test_in_a_page_it_takes_fonts_and_colours_from_there_and_leads_nowhere(inlined: Callable[[str], tuple[str, str]], kind: str) -> None:
    svg, caption = inlined(kind)
    root = Xml.fromstring(svg)  # noqa: S314
    assert (root.get("role"), root[0].tag) == ("img", "{http://www.w3.org/2000/svg}title")
    assert root.get("aria-labelledby") == root[0].get("id")
    assert {"width", "height"}.isdisjoint(root.attrib)
    assert "var(--ink, #" in svg
    for colour in ("#fcfcfa", "#22262b", "#5b626b", "#e4e6e8"):
        assert colour not in re.sub(r"var\(--\w+, #\w+\)", "", svg)
    for word in ("<metadata", "<style", "<script", "<?xml", "xlink", "DejaVu", "http://", "https://"):
        assert word not in svg.replace("http://www.w3.org/2000/svg", "", 1)
    known = set(re.findall(r'\sid="([^"]*)"', svg))
    assert set(re.findall(r'href="#([^"]*)"', svg) + re.findall(r"url\(#([^)]*)\)", svg)) <= known
    assert caption.endswith(".")
    assert caption[:40] not in svg


def test_pictures_on_a_page_share_no_ids(made: Run, inlined: Callable[[str], tuple[str, str]]) -> None:
    every = [name for kind in KINDS for name in re.findall(r'\sid="([^"]*)"', inlined(kind)[0])]
    ask = Ask(estimators=("mc",))
    every += re.findall(r'\sid="([^"]*)"', inline("levels", entries_of("levels", [made], ask), ask)[0])
    assert len(every) == len(set(every))


def test_text_from_data_is_text_and_nothing_else(made: Run) -> None:
    names = [*HOSTILE, *(f"class {i}" for i in range(len(HOSTILE), 10))]
    hostile = replace(made, info={**made.info, "name": HOSTILE[1], "data": {**made.info["data"], "class_names": names}})
    told: list[str] = []
    for kind in KINDS:
        ask = replace(asked(kind, 2), label=(HOSTILE[0], HOSTILE[4]))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            svg, _ = inline(kind, entries_of(kind, [hostile, hostile], ask), ask)
        tags = {element.tag.rpartition("}")[2] for element in Xml.fromstring(svg).iter()}  # noqa: S314
        assert tags <= {"svg", "title", "defs", "g", "path", "text", "tspan", "clipPath", "rect", "use", "image"}
        told += words(svg)
    assert any("$\\frac{1}{0}$" in word for word in told)  # no formula
    assert all(word.isprintable() for word in told)


def test_title_and_caption_can_be_left_out(made: Run) -> None:
    sketch = drawn("levels", made)
    whole, bare = (figure_of(sketch, look_of(7.0, title=kept, caption=kept)) for kept in (True, False))
    heights = [figure.get_figheight() for figure in (whole, bare)]
    assert heights[0] > heights[1] + 0.5
    assert [figure.get_figwidth() for figure in (whole, bare)] == [7.0, 7.0]
    assert whole._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


def test_what_differs_stays_in_a_legend() -> None:
    assert told_apart([("run", "mc", "sigma 0.1"), ("run", "mc", "sigma 0.2")]) == ["sigma 0.1", "sigma 0.2"]
    assert told_apart([("a", "mc"), ("b", "mc"), ("b", "mmse")]) == ["a, mc", "b, mc", "b, mmse"]
    assert told_apart([("run", "mc")]) == ["mc"]
    long = [f"an-experiment-with-a-long-name-of-{name}" for name in ("resnet", "vgg")]
    assert shorter(long, 5.0, 9.0) == long
    assert shorter(long, 1.0, 9.0) == ["\u2026resnet", "\u2026vgg"]


def test_refusals(made: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for ask, says in ((Ask(), "name both: --estimator A --estimator B"), (Ask(estimators=("mc", "nothing")), "has no estimator nothing")):
        with pytest.raises(RobauditError, match=says):
            entries_of("scatter", [made], ask)
    with pytest.raises(RobauditError, match="there is no such picture; did you mean 'levels'"):
        entries_of("level", [made], Ask())
    for width in (2.0, 30.0):
        with pytest.raises(RobauditError, match="does not fit a page"):
            look_of(width)
    monkeypatch.setattr(pictures_module, "find_spec", lambda _: None)
    with pytest.raises(RobauditError, match="the picture levels: needs matplotlib, which is not installed; pip install"):
        inline("levels", [], Ask())
