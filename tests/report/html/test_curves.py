"""The section of error curves: its numbers are those of `robaudit show RUN curves`, and runs that merely have noise do without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from robaudit.quantities import P_ROBUST, RADIUS
from robaudit.report.curve_tables import interval, text
from robaudit.report.html.content import Choice, Content, gather
from robaudit.report.html.markdown import markdown_report
from robaudit.report.html.render import page
from robaudit.report.numbers import signs
from robaudit.rows import Row
from robaudit.stats.curves import NAMES, CurveKind, curves_of
from tests.curve_rows import attacked, fading, noise_rows, noisy, pictured
from tests.report.html.tools import Page, hand_made

TITLE = "Summary of the error curves"
EVERY = tuple(pictured(8).rows)


def content(rows: Sequence[Row], choice: Choice | None = None, name: str = "spec") -> Content:
    run = hand_made(rows, quantities=[one.document() for one in (P_ROBUST, RADIUS)])
    noises = [{"name": kind, "kind": kind} for kind in ("gaussian", "linear")]
    return gather(replace(run, info={**run.info, "name": name, "spec": {**run.info["spec"], "noise": noises}}), choice or Choice())


def test_the_numbers_are_those_of_the_command(without_pictures: None) -> None:
    one = content(EVERY)
    assert one.curves is not None
    head, *lines = Page.of(page([one], images=False)[0]).tables[TITLE]
    assert head == ["", "spec"]
    found = dict(lines)
    assert found["images"] == "8"
    for kind, curve in curves_of(pictured(8)).curves.items():
        assert found[NAMES[kind]] == signs(f"{text(curve.summary)} {interval(curve.summary)}")
    written = markdown_report([one])
    assert "### Error curves" in written
    assert "ASR l2: mean l2 radius" in written


def test_models_are_side_by_side(without_pictures: None) -> None:
    both = [content(EVERY, name="old"), content(EVERY, name="new")]
    html = page(both, images=False)[0]
    assert html.count(f'<table aria-label="{TITLE}"') == 3, "one of both, and one of each"
    written = markdown_report(both)
    assert written.count("### Error curves") == 3
    assert "|   | old | new |" in written


def test_a_few_levels_of_noise_are_no_curve(without_pictures: None) -> None:
    assert content(noise_rows([[5, 5], [5, 5]])).curves is None
    assert content(noise_rows([[1, 0]] * 8)).curves is None, "far from chance: AMS would be a bound that says nothing"
    ended = content(noise_rows([[1, 0]] * 5 + [[5, 5]])).curves
    assert ended is not None
    assert list(ended.curves) == [CurveKind.NOISE]
    assert "Error curves" not in Page.of(page([content(noise_rows([[5, 5]]))], images=False)[0]).text("r1-curves")


def test_what_is_left_out_has_no_curve() -> None:
    rows = [row for i in range(4) for row in (attacked(i, 1 + i), noisy(i, fading(0.5), 3))]
    whole, part = content(rows).curves, content(rows, Choice(estimators=("mc",))).curves
    assert whole is not None
    assert part is not None
    assert list(whole.curves) == [CurveKind.L2, CurveKind.LINEAR]
    assert list(part.curves) == [CurveKind.LINEAR]


def test_without_labels_there_are_none() -> None:
    assert content([attacked(i, 1, labelled=False) for i in range(3)]).curves is None
