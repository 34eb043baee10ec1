"""A run as Markdown: the same numbers, hostile text as text, and never longer than a comment may
be."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robaudit.report import numbers
from robaudit.report.html.content import Content, gather
from robaudit.report.html.markdown import markdown_report
from robaudit.report.tables import markdown
from robaudit.stats.summary import summary_of
from tests.unit.engine.tools import known
from tests.unit.report.html.tools import DECISION, HOSTILE, hand_made, rows

CELL = re.compile(r"(?<!\\)\|")


def test_the_numbers_and_the_sections(content: Content) -> None:
    text = markdown_report(content, title="A *title*")
    title, _, warning, _, verdict, *_ = text.splitlines()
    assert title == "# A \\*title\\*"
    assert warning.startswith("**Warning:** ")
    assert verdict.startswith("**With gaussian noise of sigma 0.1 ")
    (view,) = content.views
    for part in content.parts:
        assert f"\n## {markdown(part.section.title)}\n" in text
    for group in summary_of(view.run):
        assert markdown(numbers.mean_estimate(group.mean)) in text
    clean = known(view.run.info.clean_accuracy)
    assert markdown(numbers.with_percents(clean.value, clean.lower, clean.upper)) in text
    for flagged in content.flagged(view):
        assert f"{flagged.beyond} of {flagged.total}" in text
    assert "<svg" not in text
    assert "data:image" not in text


def test_hostile_names_stay_text_in_their_columns(content: Content) -> None:
    text = markdown_report(content)
    found = [block.splitlines() for block in text.split("\n\n") if block.startswith("| ")]
    assert len(found) > 8
    for lines in found:
        assert {len(CELL.findall(line)) for line in lines} == {len(CELL.findall(lines[0]))}
        assert re.fullmatch(r"\|( :?-+:? \|)+", lines[1])
    assert not re.search(r"<(?!\\)", text)
    assert "@me" not in text
    assert "#1 " not in text
    assert not re.search(r"(?<!\\)\]\(", text)
    assert "\x1b" not in text
    for name in HOSTILE:
        assert name not in text


@given(st.text())
def test_escaped_text_is_one_line_without_markup(text: str) -> None:
    found = markdown(text)
    assert "\n" not in found
    assert "<" not in found
    assert not CELL.search(found.replace("\\\\", ""))
    assert not re.search(r"@\w|www\.|://", found)
    if text.isprintable() and text.isalnum() and "www" not in text:
        assert found == text


@pytest.mark.parametrize("most", [20_000, 3_000])
def test_never_longer_than_a_comment(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """First fewer samples are listed, then the end is cut off."""
    monkeypatch.setattr("robaudit.report.html.markdown.MOST", most)
    name = "é" * 100
    many = [
        replace(row, sample_id=f"{name}{row.sample_id}")
        for row in rows([0.1 + 0.3 * i / 300 for i in range(300)], classes=20)
    ]
    data = {"where": "x", "class_names": [f"{name}{i}" for i in range(20)], "labelled": 300}
    text = markdown_report(gather([hand_made(many, data=data)]))
    assert len(text.encode()) <= most
    assert ("was cut here" in text) is (most == 3_000)
    assert "more are not listed" in text or most == 3_000


@pytest.mark.parametrize("values", [[0.7, 0.8], [0.1, 0.2] * 20])
def test_headings_stand_alone(values: list[float]) -> None:
    """An empty line before and after each, whether samples are flagged, listed or none."""
    text = markdown_report(gather([hand_made(rows(values))], most=3))
    lines = text.splitlines()
    heads = [i for i, line in enumerate(lines) if line.startswith("#")]
    assert len(heads) >= 6
    assert [lines[i] for i in heads if (i and lines[i - 1]) or lines[i + 1]] == []
    assert "\n\n\n" not in text
    assert "()" not in text


def test_gates_come_first(content: Content) -> None:
    gate = {**DECISION, "covers": "nothing"}
    text = markdown_report(replace(content, views=(replace(content.views[0], decisions=(gate,)),)))
    assert (
        r"| mean &gt;= 0.9 | **fail** | 0.5000 \[0.4000, 0.6000\] (95%) | these 12 images |" in text
    )
    assert (
        text.index("1 gate: 1 failed")
        < text.index("With gaussian noise")
        < text.index("## Results")
    )
