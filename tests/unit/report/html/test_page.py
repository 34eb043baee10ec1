"""The page of a run: each number is the summary's, nothing is loaded, and text from data stays
text."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest

from robaudit.errors import NothingLeftError, RobauditError
from robaudit.gates.sources import decisions_of
from robaudit.levels import LevelChoice
from robaudit.quantities import LOSS, NO_INTERVAL, P_ROBUST, Interval
from robaudit.report import numbers
from robaudit.report.html import facts
from robaudit.report.html.content import Content, gather
from robaudit.report.html.render import page
from robaudit.report.legends import gap_sentence
from robaudit.report.sections import SectionRequest
from robaudit.report.tables import markdown_rows
from robaudit.runs.run import Run
from tests.golden import Golden
from tests.infos import changed
from tests.rows import summarise
from tests.unit.engine.tools import known
from tests.unit.report.html.tools import DECISION, HOSTILE, Page, hand_made, rows

LINK = re.compile(
    r"""(?:src|href|action|data|poster|srcset)\s*=\s*["']?([^"'\s>]+)|url\(\s*["']?([^"')]+)""",
    re.IGNORECASE,
)


def listed(found: Page) -> int:
    """How many samples are listed as least robust."""
    return sum(len(lines) - 1 for lines in found.tables.values() if lines[0][0] == "sample")


def test_every_tag_is_closed_and_the_headings_are_in_order(html: str) -> None:
    found = Page.of(html)
    assert found.open == []
    levels = [int(tag[1]) for tag, _ in found.tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert found.count("th") == found.count("th", scope="col") + found.count("th", scope="row") > 0
    assert all(attributes["alt"] for tag, attributes in found.tags if tag == "img")
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_nothing_is_loaded(html: str) -> None:
    links = [one or other for one, other in LINK.findall(html)]
    assert links
    assert [
        link
        for link in links
        if not link.startswith(("#", "data:image/png;base64,", "data:image/jpeg;base64,"))
    ] == []
    assert "<link" not in html
    assert "@import" not in html
    found = Page.of(html)
    (policy,) = [
        attributes["content"] or ""
        for tag, attributes in found.tags
        if "http-equiv" in attributes and tag == "meta"
    ]
    assert policy.split("; ")[:2] == ["default-src 'none'", "img-src data:"]
    assert "script" not in policy


def test_names_from_data_stay_text(html: str) -> None:
    found = Page.of(html)
    assert found.count("script") == 0
    assert "alert(1)" in found.text("classes")
    for name in (HOSTILE[0], HOSTILE[1], HOSTILE[3]):
        assert name not in html
    assert "\x1b" not in html
    assert not any(key.startswith("on") for _, attributes in found.tags for key in attributes)


def test_every_sample_and_the_provenance_are_there(content: Content, html: str) -> None:
    found = Page.of(html)
    (view,) = content.views
    listed_samples = 0
    for flagged in content.flagged(view):
        if flagged.beyond:
            count = f"{flagged.beyond} of {flagged.total} samples are below 0.5"
            assert count in found.text("flagged")
            listed_samples += len(flagged.samples)
    assert listed(found) == listed_samples
    assert view.run.info.model.sha256 in found.text("made")
    clean = known(view.run.info.clean_accuracy)
    assert numbers.with_percents(clean.value, clean.lower, clean.upper) in found.text("verdict")


def test_the_first_estimator_with_intervals_is_shown(content: Content, html: str) -> None:
    (view,) = content.views
    assert view.shown == ("mc",)
    assert [one.key.at.level for one in content.flagged(view)] == [0.1, 0.3]
    found = Page.of(html)
    assert found.count("image") > 4
    ids = [attributes["id"] for tag, attributes in found.tags if tag == "section"]
    assert ids == ["verdict", "flagged", "levels", "summary", "classes", "confusion", "made"]
    for bias in content.biases(view):
        assert gap_sentence(bias) in found.text("classes")


@pytest.mark.families
def test_a_choice_narrows_everything(run: Run, without_pictures: None, golden: Golden) -> None:
    chosen = gather(
        [run],
        SectionRequest(estimators=("softmax",), levels=LevelChoice(levels=(0.3,)), threshold=1.0),
        most=2,
    )
    assert [(group.key.estimator, group.key.at.level) for group in chosen.views[0].groups] == [
        ("softmax", 0.3)
    ]
    text, _ = page(chosen, images=False, title="<b>Mine</b>")
    found = Page.of(text)
    assert listed(found) == 2
    assert found.count("image") == 0
    assert "<b>" not in text
    assert "no interval" in found.text("flagged")
    with pytest.raises(RobauditError) as error:
        gather([run], SectionRequest(threshold=2.0))
    golden(error.value)


def test_several_runs_are_side_by_side_in_every_section(run: Run, without_pictures: None) -> None:
    content = gather([run, replace(run)], SectionRequest(label=("old", "new")))
    text, _ = page(content, images=False)
    found = Page.of(text)
    assert found.open == []
    assert [attributes["id"] for tag, attributes in found.tags if tag == "section"].count(
        "summary"
    ) == 1
    for section in ("verdict", "summary", "classes"):
        assert "0 [0, 0]" in found.text(section), "the difference of a run from itself"
    for section in ("verdict", "summary", "levels", "classes", "confusion", "flagged", "made"):
        assert "old" in found.text(section)
        assert "new" in found.text(section)


def test_much_is_folded(without_pictures: None) -> None:
    """The lists of other results than the one that is drawn."""
    many = gather(
        [
            hand_made(
                [
                    row
                    for sigma in (0.1, 0.2, 0.3, 0.4, 0.5)
                    for row in rows([0.2, 0.8] * 2, level=sigma)
                ]
            )
        ]
    )
    found = Page.of(page(many, images=False)[0])
    assert found.open == []
    part = many.part("flagged")
    assert part is not None
    assert [table.folded for table in part.tables] == [False] + [True] * 4
    assert found.text("flagged").count("Least robust first:") == 5


def test_missing_digests_leave_the_images_out(without_pictures: None) -> None:
    text, problems = page(gather([hand_made(rows([0.1, 0.9] * 4))]))
    assert len(problems) == 1
    assert "state.db: is missing" in problems[0]
    found = Page.of(text)
    assert problems[0] in found.text("flagged")
    assert listed(found) == 6


def test_data_without_labels(without_pictures: None) -> None:
    unlabelled = hand_made(
        rows([0.2, 0.7, 0.9, 0.6], classes=2, label=None, correct=None),
        clean_accuracy=None,
        data={"where": "x", "class_names": None, "labelled": 0},
    )
    found = Page.of(page(gather([unlabelled]), images=False)[0])
    assert "no noise" not in found.text("levels")
    assert "accuracy" not in found.text("verdict")
    assert "by predicted class" in found.text("classes")


def test_without_intervals_nothing_is_confirmed(without_pictures: None) -> None:
    run = hand_made(
        rows(
            [0.2, 0.7, 0.9, 0.6],
            lower=None,
            upper=None,
            std_error=None,
            interval=NO_INTERVAL,
            estimator="taylor",
        )
    )
    found = Page.of(page(gather([run]), images=False)[0])
    assert "1 of 4 images is flagged (1 without an interval)" in found.text("verdict")
    assert "~" in found.text("verdict")


def test_one_class(without_pictures: None) -> None:
    found = Page.of(page(gather([hand_made(rows([0.2] * 6, classes=1))]), images=False)[0])
    assert "All images are of one class." in found.text("classes")
    assert "least robust class" not in found.text("verdict")


def test_many_classes(without_pictures: None) -> None:
    content = gather(
        [hand_made(rows([0.3 + 0.6 * (i % 40) / 40 for i in range(160)], classes=40))], most=30
    )
    found = Page.of(page(content, images=False)[0])
    assert "The 20 least and the 5 most robust of 40 classes" in found.text("classes")
    (lines,) = [lines for caption, lines in found.tables.items() if "by label" in caption]
    assert [line[0] for line in lines[1:]] == [str(i) for i in (*range(20), *range(35, 40))]
    assert listed(found) == 30


def test_failures_on_a_log_scale(without_pictures: None) -> None:
    common: dict[str, Any] = {
        "quantity": "log10_p_fail",
        "estimator": "splitting",
        "interval": Interval.parse("lognormal:4 repeats"),
    }
    bounded = rows(
        [-12.0],
        **common | {"lower": None, "upper": -12.0, "interval": Interval.parse("upper bound")},
    )
    run = hand_made(
        [
            *rows([-0.1, -3.0, -6.0, -5.0], classes=2, **common),
            *(replace(row, sample_id="b") for row in bounded),
        ]
    )
    found = Page.of(page(gather([run]), images=False)[0])
    verdict = found.text("verdict")
    assert "the prediction changes in at most 1 of" in verdict
    assert "log10_p_fail is above -0.301" in verdict
    assert "%" not in verdict.partition("With gaussian")[2].partition("images is flagged")[0]
    assert "1 of 5" in verdict
    assert "≤ " in found.text("summary")
    assert "< 0.5" not in found.text("summary")
    assert found.tables["splitting at sigma 0.1"][1][0] == "0"


def test_no_result_at_all(golden: Golden) -> None:
    with pytest.raises(NothingLeftError) as error:
        gather([hand_made([])])
    golden(error.value)


def test_skipped_samples_and_warnings_are_told(without_pictures: None) -> None:
    skipped = [{"sample_id": f"<{i}>\x1b\u202e", "reason": "is <b>grey</b>"} for i in range(25)]
    run = hand_made(rows([0.2, 0.8] * 2), skipped=skipped, warnings=["<i>mean</i> is odd\x1b[2J"])
    text, _ = page(gather([run]), images=False)
    found = Page.of(text)
    assert "25 samples skipped" in found.text("made")
    assert "and 5 more" in found.text("made")
    assert r"<i>mean</i> is odd\x1b[2J" in found.text("verdict")
    assert not re.search("<b>|\x1b|\u202e", text)


def test_gates_stand_with_the_verdict(content: Content, without_pictures: None) -> None:
    gate = {**DECISION, "covers": "nothing"}
    passed = {**gate, "lower": None, "upper": None, "verdict": "pass"}
    decided = replace(content, views=(replace(content.views[0], decisions=(gate, passed)),))
    verdict = Page.of(page(decided, images=False)[0]).text("verdict")
    assert "fail 2 gates: 1 failed, 1 passed" in verdict
    assert "mean >= 0.9 fail 0.5000 [0.4000, 0.6000] (95%) these 12 images" in verdict
    assert "mean >= 0.9 pass 0.5000 these 12 images" in verdict


def test_losses_by_q_have_a_section_of_their_own(without_pictures: None) -> None:
    fields: dict[str, Any] = {"noise": "uniform", "level_name": "eps", "quantity": LOSS.name}
    losses = [
        row
        for name, factor in (("qnorm_path:q=1", 1), ("qnorm_path:q=10", 2), ("adversarial_loss", 3))
        for row in rows([factor * (1 + i / 10) for i in range(20)], estimator=name, **fields)
    ]
    quantities = [one.document() for one in (P_ROBUST, LOSS)]
    found = Page.of(
        page(
            gather([hand_made((*rows([0.2, 0.8] * 10), *losses), quantities=quantities)]),
            images=False,
        )[0]
    )
    head, *lines = found.tables["Mean loss by q (nats, lower is better)"]
    assert head == [
        "noise",
        "estimator",
        "q",
        "mean [95% interval]",
        "[these images]",
        "median",
        "95th %ile",
    ]
    means = [
        numbers.mean_estimate(group.mean, 0.0, LOSS.high)
        for group in summarise(losses, {LOSS.name: LOSS})
    ]
    names = [["qnorm_path", "1"], ["qnorm_path", "10"], ["adversarial_loss", "max"]]
    assert [line[1:4] for line in lines] == [
        [*name, mean] for name, mean in zip(names, means, strict=True)
    ]
    assert not any(caption.startswith("loss: ") for caption in found.tables)
    assert "p_robust" in found.text("summary")
    assert "Images with the highest loss, qnorm_path, uniform eps 0.1" in found.text("losses")


def test_the_run_s_own_gates() -> None:
    run = hand_made(rows([0.2, 0.8]))
    assert decisions_of(run) == ((), "")
    (now,), problem = decisions_of(
        replace(run, info=changed(run.info, spec={"gates": ["mean >= 0.9"]}))
    )
    assert problem == ""
    assert now["gate"] == "mean(estimator=mc, sigma=0.1) >= 0.9"
    assert (now["verdict"], now["value"]) == ("fail", 0.5)
    none, problem = decisions_of(
        replace(run, info=changed(run.info, spec={"gates": ["mean(estimator=taylor) >= 0.9"]}))
    )
    assert none == ()
    assert "the run has no taylor for this gate; known: mc" in problem


def test_what_is_not_known_is_a_dash() -> None:
    """A number that is not finite is null."""
    unknown = {
        "value": None,
        "lower": None,
        "upper": None,
        "covers": "nothing",
        "about": "these 12 images",
        "verdict": "inconclusive",
    }
    table = facts.decision_table([{**DECISION, **unknown}])
    assert [cell.text for cell in table.rows[0]] == [
        "mean >= 0.9",
        "inconclusive",
        "–",
        "these 12 images",
    ]
    assert "| mean &gt;= 0.9 | inconclusive | – | these 12 images |" in markdown_rows(table)
    assert (
        facts.decision_table([{**DECISION, "lower": None}]).rows[0][2].text
        == "0.5000 [..., 0.6000] (95%)"
    )
    exact = dict.fromkeys(("value", "lower", "upper"), 128 / 150)
    assert facts.decision_table([{**DECISION, **exact}]).rows[0][2].text == "0.8533", (
        "the ends of an exact value are not rounded outwards"
    )


def test_the_worst_images_come_first_from_the_result_with_the_most_flagged() -> None:
    made = hand_made(
        [
            *rows([0.2] + [0.8] * 11, level=0.1),
            *rows([0.9] * 12, level=0.2),
            *rows([0.2] * 12, noise="uniform", level=0.1),
        ]
    )
    content = gather([made])
    assert [part.name for part in content.parts][:2] == ["flagged", "levels"]
    first, rest, other, note = known(content.part("flagged")).tables
    assert (first.heading, len(first.rows), first.folded) == ("mc at uniform sigma 0.1", 8, False)
    assert (rest.heading, len(rest.rows), rest.folded) == (
        "mc at uniform sigma 0.1: images 9 to 12",
        4,
        True,
    )
    assert (other.heading, other.folded) == ("mc at sigma 0.1", True)
    assert note.notes == ("No sample is flagged in 1 other result.",)
