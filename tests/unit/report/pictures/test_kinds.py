"""Every picture: drawn from one run and from several, with all words, the same every time."""

from __future__ import annotations

import io
import re
import warnings
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import numpy as np
import pytest
from PIL import Image

from robaudit import audit
from robaudit.errors import RobauditError
from robaudit.levels import LevelChoice
from robaudit.report import pictures as pictures_module
from robaudit.report.flagged_section import sized
from robaudit.report.gallery import RunImages
from robaudit.report.pictures import kinds_of_picture
from robaudit.report.pictures.inline import inline
from robaudit.report.pictures.kinds import drawing_of, figure_of, picture, size_of
from robaudit.report.pictures.page import shorter, told_apart
from robaudit.report.pictures.style import LOWER
from robaudit.report.sections import SectionRequest, section_of
from robaudit.runs.run import Run
from robaudit.stats.flags import Certainty
from tests.golden import Golden
from tests.infos import changed
from tests.specs import digits, write
from tests.unit.engine.tools import known
from tests.unit.report.html.tools import hand_made, rows
from tests.unit.report.pictures.made import HOSTILE, texts, unreadable, usual

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.families
LABELS = ("first of all", "second of all", "third of all")


@pytest.mark.parametrize(
    ("kind", "ending"), [("flagged", "svg"), ("scores", "png"), ("scores", "pdf")]
)
def test_it_is_a_file_and_the_same_one_whatever_the_settings_of_the_user(
    made: Run, kind: str, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib as mpl

    drawing = drawing_of(
        kind, [made], SectionRequest(bottom=2) if kind == "flagged" else SectionRequest()
    )
    first = picture(drawing, ending, size_of(7.0))
    with mpl.rc_context(
        {
            "font.size": 30,
            "axes.facecolor": "red",
            "svg.fonttype": "none",
            "pdf.fonttype": 3,
            "text.parse_math": True,
        }
    ):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
        assert picture(drawing, ending, size_of(7.0)) == first
        assert mpl.rcParams["font.size"] == 30
    if ending == "png":
        assert Image.open(io.BytesIO(first)).size[0] == 7 * 300
    elif ending == "svg":
        assert Xml.fromstring(first).get("width") == "504pt"  # noqa: S314
        assert b"<text" not in first  # letters are outlines: no font is needed
        assert b"Date" not in first
    else:
        assert b"/FontFile2" in first


def test_an_image_stands_clean_beside_its_first_noisy_copy(made: Run) -> None:
    from matplotlib.image import AxesImage

    columns = next(iter(made.groups(["mc"]).values()))
    name = columns.names[int(columns.values.argmin())]
    at = columns.key.at
    drawing = drawing_of(
        "flagged",
        [made],
        SectionRequest(estimators=("mc",), levels=LevelChoice(levels=(at.number,)), bottom=1),
    )
    (drawn,) = (
        found
        for found in figure_of(drawing, size_of(7.0)).findobj(AxesImage)
        if isinstance(found, AxesImage)
    )
    pixels = np.asarray(drawn.get_array())[..., :3]
    images = RunImages(made, [name])
    clean = images.clean(name)
    noisy = sized(images.noisy(name, clean, at))
    assert not np.array_equal(sized(clean), noisy)
    assert np.array_equal(pixels[:, : len(pixels)], sized(clean))
    assert np.array_equal(pixels[:, -len(pixels) :], noisy)


def test_a_picture_is_red_where_its_row_is(made: Run) -> None:
    """Where it is confirmed that noise breaks what was right; a likely one is not red."""
    levels = LevelChoice(noises=("gaussian",), levels=(2.0,))
    request = SectionRequest(estimators=("mc",), levels=levels, bottom=10)
    (flagged,) = section_of("flagged").records(made, request)
    right = [sample for sample in flagged.samples if not sample.is_wrong]
    confirmed = [sample.certainty is Certainty.CONFIRMED for sample in right]
    likely = [sample for sample in right if sample.certainty is Certainty.LIKELY]
    assert any(confirmed)
    assert likely
    figure = figure_of(drawing_of("flagged", [made], request), size_of(7.0))
    labels = [ax.xaxis.label for ax in figure.axes if ax.get_xlabel()]
    assert [label.get_color() for label in labels].count(LOWER) == sum(confirmed)


def test_ids_of_digits_and_capitals_do_not_run_into_each_other(tmp_path: Path) -> None:
    photos = tmp_path / "photos" / "N02526121"
    photos.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(3):
        pixels = rng.integers(0, 256, (8, 8), dtype=np.uint8)
        Image.fromarray(pixels).save(photos / f"N02526121_HAMMERHEAD_WOMBAT_{i}.PNG")
    names = ["N02526121", *map(str, range(1, 10))]
    images = {"kind": "images", "path": "photos", "channels": 1, "class_names": names}
    spec = write(tmp_path, digits(dataset=images, noise={"sigma": 3.0}, run={"as_given": True}))
    run = audit(spec, out=tmp_path / "run")
    figure = figure_of(drawing_of("flagged", [run], SectionRequest(bottom=3)), size_of(7.0))
    figure.draw_without_rendering()
    boxes = [ax.xaxis.label.get_window_extent() for ax in figure.axes if ax.get_xlabel()]
    assert len(boxes) == 3
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


@pytest.mark.parametrize("kind", kinds_of_picture())
def test_it_takes_several_runs_at_the_width_of_a_column(made: Run, kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawing = drawing_of(kind, [made] * 3, SectionRequest(label=LABELS))
        figure = figure_of(drawing, size_of(3.3, title=False, caption=False))
    assert figure.get_figwidth() == 3.3
    told = " ".join([*texts(figure), drawing.caption])
    assert all(label in told for label in LABELS), told
    assert unreadable(figure) == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [3.3, 7.0])
@pytest.mark.parametrize("kind", kinds_of_picture())
def test_all_words_can_be_read_however_long_the_names_are(
    made: Run, kind: str, width: float
) -> None:
    names = [
        f"the class of number {i}, which has a name that is long enough to fill a line"
        for i in range(10)
    ]
    run = replace(made, info=changed(made.info, data={"class_names": names}))
    labels = [
        f"a-network-that-was-trained-for-many-days-with-the-settings-of-experiment-{i}"
        for i in range(2)
    ]
    for runs, request in (([run], SectionRequest()), ([run] * 2, SectionRequest(label=labels))):
        assert unreadable(figure_of(drawing_of(kind, runs, request), size_of(width))) == []


def test_in_a_page_it_takes_fonts_and_colours_from_there_and_text_from_data_is_text(
    made: Run,
) -> None:
    names = [*HOSTILE, *(f"class {i}" for i in range(len(HOSTILE), 10))]
    hostile = replace(made, info=changed(made.info, name=HOSTILE[1], data={"class_names": names}))
    ids: list[str] = []
    words: list[str] = []
    for kind in kinds_of_picture():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            drawing = drawing_of(kind, [hostile], SectionRequest())
            svg = inline(kind, drawing)
        root = Xml.fromstring(svg)  # noqa: S314
        assert (root.get("role"), root[0].tag) == ("img", "{http://www.w3.org/2000/svg}title")
        assert root.get("aria-labelledby") == root[0].get("id")
        assert {"width", "height"}.isdisjoint(root.attrib)
        markup = re.sub(">[^<]*<", "><", svg)
        assert "var(--ink, #" in markup
        for colour in ("#fcfcfa", "#22262b", "#5b626b", "#e4e6e8"):
            assert colour not in re.sub(r"var\(--\w+, #\w+\)", "", markup)
        for word in ("<metadata", "<style", "<script", "<?xml", "xlink", "DejaVu"):
            assert word not in markup
        tags = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert tags <= {
            "svg",
            "title",
            "defs",
            "g",
            "path",
            "text",
            "tspan",
            "clipPath",
            "rect",
            "use",
            "image",
        }
        links = re.findall(r'href="([^"]*)"', markup) + re.findall(r"url\(([^)]*)\)", markup)
        assert all(link.startswith(("#", "data:image/png;base64,")) for link in links)
        known = re.findall(r'\sid="([^"]*)"', markup)
        assert {link[1:] for link in links if link.startswith("#")} <= set(known)
        ids += known
        assert drawing.caption.endswith(".")
        assert drawing.caption[:40] not in svg
        words += [
            "".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")
        ]
    assert len(ids) == len(set(ids)), "pictures on a page share none"
    assert any("$\\frac{1}{0}$" in word for word in words), "no formula"
    assert all(word.isprintable() for word in words)


def test_title_and_caption_can_be_left_out(made: Run) -> None:
    drawing = drawing_of("scores", [made], SectionRequest())
    whole, bare = (
        figure_of(drawing, size_of(7.0, title=kept, caption=kept)) for kept in (True, False)
    )
    heights = [figure.get_figheight() for figure in (whole, bare)]
    assert heights[0] > heights[1] + 0.5
    assert [figure.get_figwidth() for figure in (whole, bare)] == [7.0, 7.0]
    assert whole._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


def test_what_differs_stays_in_a_legend() -> None:
    assert told_apart([("run", "mc", "sigma 0.1"), ("run", "mc", "sigma 0.2")]) == [
        "sigma 0.1",
        "sigma 0.2",
    ]
    assert told_apart([("a", "mc"), ("b", "mc"), ("b", "mmse")]) == ["a, mc", "b, mc", "b, mmse"]
    assert told_apart([("run", "mc")]) == ["mc"]
    long = [f"an-experiment-with-a-long-name-of-{name}" for name in ("resnet", "vgg")]
    assert shorter(long, 60) == long
    assert shorter(long, 10) == ["\u2026resnet", "\u2026vgg"]


def test_refusals(made: Run, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    with pytest.raises(RobauditError) as error:
        drawing_of("level", [made], SectionRequest())
    golden(error.value)
    for width in (2.0, 30.0):
        with pytest.raises(RobauditError) as error:
            size_of(width)
        golden(error.value)
    drawing = drawing_of("scores", [made], SectionRequest())
    monkeypatch.setattr(pictures_module, "find_spec", lambda _: None)
    with pytest.raises(RobauditError) as error:
        inline("scores", drawing)
    golden(error.value)


def test_many_noises_are_one_overview() -> None:
    made = hand_made(
        [
            row
            for noise in ("gaussian", "uniform", "laplace")
            for level in (0.1, 0.2)
            for row in rows([0.25, 0.75], noise=noise, level=level)
        ]
    )
    figure = figure_of(drawing_of("levels", [made], SectionRequest()), size_of(7.0))
    drawn = texts(figure)
    assert [name for name in ("gaussian", "uniform", "laplace") if name in drawn] == [
        "gaussian",
        "uniform",
        "laplace",
    ]
    assert sum(text.startswith("sigma 0.") for text in drawn) >= 4
    assert "0.500" in drawn
    # Fewer noises are curves.
    two = drawing_of("levels", [made], SectionRequest(levels=LevelChoice(noises=("gaussian",))))
    assert "0.500" not in texts(figure_of(two, size_of(7.0)))


def test_the_legend_of_the_summary_is_above_the_curves() -> None:
    figure = figure_of(drawing_of("summary", [usual()], SectionRequest()), size_of(7.0))
    ax = figure.axes[0]
    from matplotlib.text import Text

    legend = known(ax.get_legend()).get_window_extent()
    assert legend.y0 >= ax.get_window_extent().y1
    (title,) = [
        child
        for child in ax.get_children()
        if isinstance(child, Text) and child.get_text() == ax.get_title(loc="left")
    ]
    assert title.get_window_extent().y0 >= legend.y1 - 1


def test_severities_are_the_ticks() -> None:
    severities: dict[str, Any] = {"noise": "fog", "level_name": "severity"}
    run = hand_made([row for at in (1.0, 3.0, 5.0) for row in rows([0.2], level=at, **severities)])
    figure = figure_of(drawing_of("levels", [run], SectionRequest()), size_of(7.0))
    assert list(figure.axes[0].get_xticks()) == [1.0, 3.0, 5.0]


def test_long_names_of_flagged_images_are_below_each_other(made: Run) -> None:
    names = [f"a class with a long name {i}" for i in range(10)]
    run = replace(made, info=changed(made.info, data={"class_names": names}))
    figure = figure_of(drawing_of("flagged", [run], SectionRequest(bottom=4)), size_of(7.0))
    titles = [text for text in texts(figure) if "\u2192" in text]
    assert titles
    assert all("\n\u2192 a class" in text for text in titles)
