"""The picture of error curves draws their numbers, and the table prints them."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from robaudit.report.curve_tables import curve_table
from robaudit.report.numbers import NONE
from robaudit.report.pictures.curves import MOST_MODELS, sketch
from robaudit.report.pictures.kinds import drawn
from robaudit.report.pictures.page import Look, page
from robaudit.stats.curves import HUMANS, CurveKind, Curves, curves_of
from tests.curve_rows import attacked, curves_run, noise_rows, pictured
from tests.report.pictures.made import HOSTILE

pytest.importorskip("matplotlib")


def models(count: int) -> list[Curves]:
    return [curves_of(pictured(6 + i), f"model {i}") for i in range(count)]


def axes_of(every: list[Curves], width: float = 7.0) -> dict[str, Any]:
    """The axes of the picture by their labels."""
    from matplotlib.figure import Figure

    size, draw = page(sketch(every), Look(width, size=9.0 if width > 6 else 7.0))
    figure = Figure(figsize=size)
    draw(figure)
    return {ax.get_xlabel() or f"none {i}": ax for i, ax in enumerate(figure.axes)}


def test_lines_and_bands_are_those_of_the_curves() -> None:
    every = models(2)
    found = axes_of(every)
    for kind, label in ((CurveKind.NOISE, "standard deviation"), (CurveKind.LINEAR, "gamma, share of the image left")):
        lines = [line for line in found[label].lines if len(line.get_xdata()) > 2]
        assert len(lines) == 2
        for line, one in zip(lines, every, strict=True):
            curve = one.curves[kind]
            points = len(line.get_xdata())
            assert points >= 4
            assert np.array_equal(line.get_xdata(), curve.places[:points])
            assert np.allclose(line.get_ydata(), 1 - curve.errors[:points])
        assert len(found[label].collections) == 2
    straight = [line for line in found["gamma, share of the image left"].lines if len(line.get_xdata()) == 2]
    assert {tuple(map(float, line.get_xdata())) for line in straight} == {(HUMANS, HUMANS), (0.0, 1.0)}
    assert found["gamma, share of the image left"].get_xlim() == (1.0, 0.0), "less of the image to the right"


def test_the_tail_of_a_noise_curve_is_left_out_and_the_caption_says_so() -> None:
    lost = [[k] * 2 for k in (1, 3, 5, 5, 5, 5, 5, 5)]
    one = curves_of(curves_run(noise_rows(lost)))
    assert "Under noise the curves go on to a standard deviation of 2.56." in sketch([one]).caption
    assert axes_of([one])["standard deviation"].get_xlim() == pytest.approx((0.0, 0.32 * 4))
    short = curves_of(curves_run(noise_rows(lost[:3])))
    assert "go on" not in sketch([short]).caption
    assert axes_of([short])["standard deviation"].get_xlim() == pytest.approx((0.0, 0.32 * 3))


@pytest.mark.parametrize("width", [3.3, pytest.param(5.0, marks=pytest.mark.slow), 12.0])
@pytest.mark.parametrize("count", [1, MOST_MODELS + 2])
def test_any_width_and_number_of_models(width: float, count: int) -> None:
    assert drawn(sketch(models(count)), "svg", width=width).startswith(b"<?xml")


def test_the_caption_says_what_is_open_and_what_is_left_out() -> None:
    words = sketch(models(MOST_MODELS + 1)).caption
    assert f"Not shown: model {MOST_MODELS}." in words
    assert "l2 attacks change nothing on" in words
    assert "which human observers name at gamma of about 0.25" in words
    one = sketch(models(1)).caption
    assert "model 0" not in one, "one model needs no name"
    assert "Share of 6 images" in one


def test_curves_of_a_single_point_and_of_one_image() -> None:
    wrong = curves_of(curves_run([attacked(i, 3, correct=False) for i in range(3)]))
    alone = curves_of(curves_run([attacked(0, 2)]))
    for one in (wrong, alone):
        assert drawn(sketch([one]), "png").startswith(b"\x89PNG")
    assert "Bands" not in sketch([alone]).caption


def test_a_grid_that_is_too_coarse() -> None:
    balls = [1, 1, 1, 2]
    lost = curves_of(curves_run([attacked(i, ball) for i, ball in enumerate(balls)]))
    assert "L2 attacks: the first step, 0.32, takes 75% of the correct images; a smaller one would tell more." in printed([lost])
    kept = curves_of(curves_run([attacked(i, ball + 1) for i, ball in enumerate(balls)]))
    assert "first step" not in printed([kept])


def test_models_that_lack_a_curve() -> None:
    first, second = models(2)
    part = replace(second, curves={kind: curve for kind, curve in second.curves.items() if kind is not CurveKind.L2})
    assert len(axes_of([first, part])) == 5, "four panels and the legend"
    table = printed([first, part])
    (line,) = [line for line in table.splitlines() if line.startswith("ASR l2 ")]
    assert line.rstrip().endswith(NONE)


@pytest.mark.parametrize("name", [HOSTILE[0], *(pytest.param(name, marks=pytest.mark.slow) for name in HOSTILE[1:])])
def test_names_are_text(name: str) -> None:
    hostile = replace(models(1)[0], name=name)
    for every in ([hostile], [hostile, *models(2)]):
        assert drawn(sketch(every), "svg").startswith(b"<?xml")
        assert "\x1b[31m" not in printed(every)


def printed(every: list[Curves], width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(curve_table(every))
    return captured.get()


@pytest.mark.parametrize(("width", "tables"), [(120, 2), (80, 2), (60, 2)])
def test_models_side_by_side(width: int, tables: int) -> None:
    found = printed(models(4), width)
    assert found.count("Summary of the error curves") == tables
    assert found.count("bootstrap interval") == 1, "the notes once, at the end"
    for i in range(4):
        assert f"model {i}" in found


@pytest.mark.parametrize("width", [120, 80, 60])
def test_long_names_that_differ_at_their_end_are_told_apart(width: int) -> None:
    names = [f"{'a_network_with_a_long_name_' * 3}{i}" for i in range(3)]
    found = printed([replace(one, name=name) for one, name in zip(models(3), names, strict=True)], width)
    assert "…" not in found
    for i in range(3):
        assert any(word.endswith(f"_{i}") for line in found.splitlines() for word in line.split())
