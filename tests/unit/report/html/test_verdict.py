"""The verdict of a page: its two intervals, all noises, and what noise breaks and repairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from robaudit.report.html.content import gather
from robaudit.report.html.render import page
from robaudit.report.html.verdict import flag_sentence, glance, sentence
from robaudit.report.summary_section import headline
from robaudit.report.tables import Table
from robaudit.results import Votes
from robaudit.runs.rows import Row
from robaudit.runs.run import Run
from tests.unit.report.html.tools import Page, hand_made, rows

NOISES = ("gaussian", "fog", "rain", "night", "blur", "dust", "rays")
DRAWS = 20


def voted(
    noise: str, kept: Sequence[int], wrong: Sequence[int] = (), level: float = 0.1
) -> Iterator[Row]:
    """A row for each number of copies that keep the class; the others vote for the next class,
    which is the label of the ``wrong`` images."""
    for i, count in enumerate(kept):
        row = rows([count / DRAWS], classes=1, noise=noise, level=level)[0]
        votes = Votes((count, DRAWS - count))
        yield replace(
            row,
            sample_id=str(i),
            predicted=0,
            label=int(i in wrong),
            correct=i not in wrong,
            flips_to=1,
            votes=votes,
            lower=max(0.0, row.value - 0.1),
            upper=min(1.0, row.value + 0.1),
        )


def several(**changed: Sequence[int]) -> Run:
    """Seven noises; ``changed``: the copies that keep the class under some."""
    held: list[Row] = []
    for noise in NOISES:
        held += voted(noise, changed.get(noise, [20, 19, 18, 20]))
    held.sort(key=lambda row: int(row.sample_id))
    return hand_made(held)


def column(table: Table, head: str) -> list[str]:
    place = [one.head for one in table.columns].index(head)
    return [row[place].text for row in table.rows]


def test_both_intervals_are_named() -> None:
    content = gather([hand_made(voted("gaussian", [20, 19, 18, 12]))])
    said = sentence(content.views[0])
    assert "(images like these; these 4 images: [" in said
    table = glance(content)
    (mean, measured) = (
        content.views[0].groups[0].mean.population,
        content.views[0].groups[0].mean.measured,
    )
    assert mean.bounds != measured.bounds
    heads = [one.head for one in table.columns]
    assert heads[heads.index("prediction unchanged") + 1] == "[these images]"
    lower, upper = column(table, "[these images]")[-1].strip("[]").split(", ")
    assert measured.lower is not None
    assert measured.upper is not None
    assert float(lower) <= measured.lower <= measured.upper <= float(upper)


def test_all_noises_are_in_one_table() -> None:
    runs = [several(rain=[3, 2, 1, 0]), several(rain=[4, 2, 1, 0], fog=[9, 9, 9, 9])]
    content = gather(runs)
    table = glance(content)
    texts = [text for text in column(table, "noise") if text != "no noise"]
    assert len(texts) == 2 * len(NOISES)
    assert list(dict.fromkeys(texts)) == [
        "sigma 0.1",
        *(f"{noise} sigma 0.1" for noise in NOISES[1:]),
    ]
    assert texts[0] == texts[1], "the runs are beside each other"
    assert ", and at rain sigma 0.1 in " in sentence(content.views[0])
    assert all("rain sigma 0.1" in cell.text for cell in table.conclusions)


def test_red_is_what_noise_breaks() -> None:
    """The same rule for each noise: a confirmed image that is right without noise."""
    held = [*voted("fog", [2, 20], wrong=[0]), *voted("rain", [2, 20])]
    held.sort(key=lambda row: int(row.sample_id))
    table = glance(gather([hand_made(held)]))
    tones = {row[0].text: row[-1].tone for row in table.rows if row[-1].text}
    assert tones == {"fog sigma 0.1": "", "rain sigma 0.1": "bad"}
    assert {row[-1].text for row in table.rows if row[-1].text} == {"1 of 2"}


def test_the_summary_says_in_a_line_what_stays_right_and_what_is_repaired() -> None:
    lines = {
        (3,): "stays right     68.3% [17.0%, 96.4%] of 3 right; 90.0% [2.2%, 99.8%] of 1 wrong are "
        "repaired, at fog sigma 0.1 (mc)",
        (): "stays right     53.8% [15.0%, 89.9%] of 4 right, at fog sigma 0.1 (mc)",
        (0, 1, 2, 3): "is repaired     46.3% [10.1%, 85.0%] of 4 wrong, at fog sigma 0.1 (mc)",
    }
    for wrong, line in lines.items():
        # The line is about the more harmful of two noises.
        held = [*voted("gaussian", [20] * 4), *voted("fog", [20, 16, 5, 2], wrong=wrong)]
        held.sort(key=lambda row: int(row.sample_id))
        assert line in headline(hand_made(held))


def test_no_line_about_turns_without_labels() -> None:
    unlabelled = [replace(row, label=None, correct=None) for row in voted("fog", [20, 3])]
    assert "stays right" not in "".join(headline(hand_made(unlabelled)))


def test_only_wrong_images_are_repaired() -> None:
    (view,) = gather([hand_made(voted("gaussian", [5, 2], wrong=[0, 1]))]).views
    assert "of the copies of the 2 wrong images are repaired." in sentence(view)


def test_what_stays_right_and_what_is_repaired(without_pictures: None) -> None:
    content = gather([hand_made(voted("gaussian", [20, 16, 5, 2], wrong=[3]))])
    said = sentence(content.views[0])
    assert "At sigma 0.1, 68.3% [" in said
    assert "of the copies of the 3 images that are right without noise stay right" in said
    assert "and 90.0% [" in said
    assert "of those of the 1 wrong image are repaired." in said
    table = glance(content)
    assert column(table, "right stays right")[-1].startswith("68.3% [")
    assert column(table, "wrong is repaired")[-1].startswith("90.0% [")
    flags = flag_sentence(content, content.views[0])
    assert "1 of the 2 is wrong without noise, and flips to the label." in flags
    text = Page.of(page(content, images=False)[0]).text("verdict")
    assert "1 of the 2 is wrong without noise" in text.replace("\xa0", " ")
