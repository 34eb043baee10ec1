"""The page of a run: each number is the summary's, nothing is loaded, and text from data stays text."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from robaudit.errors import NothingLeftError, RobauditError
from robaudit.levels import LevelChoice
from robaudit.quantities import NO_INTERVAL, Interval
from robaudit.report import numbers
from robaudit.report.gallery import RunImages
from robaudit.report.html.content import Choice, Content, gather
from robaudit.report.html.render import page
from robaudit.report.html.verdict import tiles
from robaudit.report.words import gap_sentence
from robaudit.store.run import Run
from tests.report.html.tools import DECISION, HOSTILE, Page, hand_made, rows

LINK = re.compile(r"""(?:src|href|action|data|poster|srcset)\s*=\s*["']?([^"'\s>]+)|url\(\s*["']?([^"')]+)""", re.IGNORECASE)


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
    assert [link for link in links if not link.startswith(("#", "data:image/png;base64,", "data:image/jpeg;base64,"))] == []
    assert "<link" not in html
    assert "@import" not in html
    found = Page.of(html)
    (policy,) = [attributes["content"] or "" for tag, attributes in found.tags if "http-equiv" in attributes and tag == "meta"]
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.split("; ")[:2] == ["default-src 'none'", "img-src data:"]
    assert f"script-src 'sha256-{digest}'" in policy


def test_names_from_data_stay_text(html: str) -> None:
    found = Page.of(html)
    assert found.count("script") == 1
    assert "alert(1)" in found.text("r1-classes")
    for name in (HOSTILE[0], HOSTILE[1], HOSTILE[3]):
        assert name not in html
    assert "\x1b" not in html
    assert not any(key.startswith("on") for _, attributes in found.tags for key in attributes)


def test_the_numbers_are_those_of_the_summary(content: Content, html: str) -> None:
    found = Page.of(html)
    text = found.text("r1-robustness")
    for group in content.run.summary():
        mean, quantity = group.mean, content.quantity(group.key.quantity)
        assert numbers.interval(mean.lower, mean.upper) in text
        assert numbers.quantile(group.p05, quantity) in text
        assert group.below_half is None or numbers.share(group.below_half) in text
    clean = content.run.info["clean_accuracy"]
    assert f"{clean['count']} of {clean['total']} images" in found.text("r1-verdict")
    for entry in content.run.info["noisy_accuracy"]:
        assert numbers.percents(entry["lower"], entry["upper"]) in found.text("r1-accuracy")
    for bias in content.biases:
        for one in bias.classes:
            assert numbers.interval(one.mean.lower, one.mean.upper) in found.text("r1-classes")
    for flagged in content.flagged:
        assert f"{flagged.beyond} of {flagged.total} images are flagged" in found.text("r1-samples")
    assert found.count("li", class_="card") == sum(len(flagged.samples) for flagged in content.flagged)
    assert content.run.info["model"]["sha256"] in found.text("r1-made")


def test_the_first_estimator_with_intervals_is_shown(content: Content, html: str) -> None:
    assert content.shown == ("mc",)
    assert [one.key.at.level for one in content.flagged] == [0.1, 0.3]
    found = Page.of(html)
    assert "logit_gaussian − mc" in found.text("r1-agreement")
    assert "softmax" not in found.text("r1-agreement")
    assert [attributes["class"] for tag, attributes in found.tags if tag == "img"].count("pixels") > 4


def test_a_choice_narrows_everything(run: Run, without_pictures: None) -> None:
    chosen = gather(run, Choice(estimators=("softmax",), levels=LevelChoice(levels=(0.3,)), most=2, threshold=1.0))
    assert [(group.key.estimator, group.key.at.level) for group in chosen.groups] == [("softmax", 0.3)]
    text, _ = page([chosen], images=False, title="<b>Mine</b>")
    found = Page.of(text)
    assert found.count("li", class_="card") == 2
    assert found.count("img") == 0
    assert "<b>" not in text
    assert "Shown: the 2 least robust." in found.text("r1-samples")
    assert "no interval" in found.text("r1-samples")
    assert found.text("r1-agreement") == ""
    with pytest.raises(RobauditError, match=r"--threshold 2: p_robust goes from 0 to 1"):
        gather(run, Choice(threshold=2.0))


def test_several_runs_are_compared_first(content: Content, without_pictures: None) -> None:
    text, _ = page([content, content], images=False)
    found = Page.of(text)
    assert found.open == []
    assert text.index('id="comparison"') < text.index('id="r1"') < text.index('id="r2"')
    assert found.text("r1-robustness") == found.text("r2-robustness") != ""
    assert found.text("comparison").count("mc") == 4
    assert "All runs used the same data" in found.text("comparison")
    assert "0 [0, 0]" in found.text("comparison"), "the difference of a run from itself"
    other = replace(content, run=replace(content.run, info={**content.run.info, "data": {**content.run.info["data"], "sha256": "x"}}))
    assert "different data" in Page.of(page([content, other], images=False)[0]).text("comparison")


def test_much_is_folded(without_pictures: None) -> None:
    """Of more than three galleries the others, of more than two runs all but the first."""
    sigmas = (0.1, 0.2, 0.3, 0.4, 0.5)
    many = gather(hand_made([row for sigma in sigmas for row in rows([0.2, 0.8] * 2, level=sigma)]), Choice())
    found = Page.of(page([many] * 3, images=False)[0])
    assert found.open == []
    levels = [(tag, "open" in attributes) for tag, attributes in found.tags if "data-level" in attributes]
    assert levels == [("details", place < 3) for place in range(5)] * 3
    assert ["open" in attributes for _, attributes in found.tags if attributes.get("class") == "run"] == [True, False, False]
    two = Page.of(page([gather(hand_made(rows([0.2, 0.8])), Choice())] * 2, images=False)[0])
    assert ["open" in attributes for _, attributes in two.tags if attributes.get("class") == "run"] == [True, True]
    assert [tag for tag, attributes in two.tags if "data-level" in attributes] == ["div", "div"]


def test_the_verdict_on_classes_and_the_captions_are_text_of_the_page(content: Content, html: str) -> None:
    found = Page.of(html)
    for bias in content.biases:
        assert found.text("r1-classes").count(gap_sentence(bias)) >= 1
    for section, words in (
        ("classes", "interval for images like these, simultaneous over all classes"),
        ("cost", "Seconds: measured once"),
    ):
        assert words in found.text(f"r1-{section}")
        assert not any(words in svg for svg in re.findall(r"<svg xmlns.*?</svg>", html, re.DOTALL))


def test_missing_digests_leave_the_images_out(without_pictures: None) -> None:
    text, problems = page([gather(hand_made(rows([0.1, 0.9] * 4)), Choice())])
    assert len(problems) == 1
    assert "state.db: is missing" in problems[0]
    found = Page.of(text)
    assert problems[0] in found.text("r1-samples")
    assert found.count("img") == 0
    assert found.count("li", class_="card") == 6


def test_an_image_that_cannot_be_read_leaves_one_gap(content: Content, monkeypatch: pytest.MonkeyPatch, without_pictures: None) -> None:
    worst, clean = content.flagged[0].samples[0].id, RunImages.clean

    def broken(images: RunImages, sample_id: str) -> Tensor:
        if sample_id == worst:
            raise RobauditError(sample_id, "is broken")
        return clean(images, sample_id)

    monkeypatch.setattr(RunImages, "clean", broken)
    text, problems = page([content])
    assert problems == (f"{worst}: is broken",)
    found = Page.of(text)
    cards = [one.id for flagged in content.flagged for one in flagged.samples]
    assert found.count("li", class_="card") == len(cards)
    assert found.count("div", class_="pair") == len(cards) - cards.count(worst)


def test_data_without_labels(without_pictures: None) -> None:
    unlabelled = hand_made(
        rows([0.2, 0.7, 0.9, 0.6], classes=2, label=None, correct=None),
        clean_accuracy=None,
        data={"where": "x", "class_names": None, "labelled": 0},
    )
    found = Page.of(page([gather(unlabelled, Choice())], images=False)[0])
    assert "no labels" in found.text("r1-accuracy")
    assert "not measured" in found.text("r1-verdict")
    assert "By predicted class" in found.text("r1-classes")
    assert sum(attributes.get("data-judged") == "unlabelled" for _, attributes in found.tags) == 4


def test_without_intervals_nothing_is_confirmed(without_pictures: None) -> None:
    run = hand_made(rows([0.2, 0.7, 0.9, 0.6], lower=None, upper=None, std_error=None, interval=NO_INTERVAL, estimator="taylor"))
    found = Page.of(page([gather(run, Choice())], images=False)[0])
    assert "1 of 4 1 without an interval" in found.text("r1-verdict")
    assert "~" in found.text("r1-verdict")


@pytest.mark.parametrize("count", [1, 6])
def test_one_class(count: int, without_pictures: None) -> None:
    found = Page.of(page([gather(hand_made(rows([0.2] * count, classes=1)), Choice())], images=False)[0])
    assert "not tested" in found.text("r1-classes")
    assert "Least robust class" not in found.text("r1-verdict")
    assert 'data-kind="bias"' not in found.text("r1-classes")


@pytest.mark.slow
def test_a_thousand_classes(without_pictures: None) -> None:
    content = gather(hand_made(rows([0.3 + 0.6 * (i % 1000) / 1000 for i in range(2000)], classes=1000)), Choice(most=30))
    text, _ = page([content], images=False)
    found = Page.of(text)
    assert "The 20 least robust of 1,000 classes" in found.text("r1-classes")
    assert "All the other 975 classes" in found.text("r1-classes")
    assert found.count("li", class_="card") == 30
    assert text.index("The 20 weakest") < text.index("The 5 strongest") < text.index("All the other")
    assert len(text) < 2_000_000


def test_failures_on_a_log_scale(without_pictures: None) -> None:
    common: dict[str, Any] = {"quantity": "log10_p_fail", "estimator": "splitting", "interval": Interval.parse("lognormal:4 repeats")}
    bounded = rows([-12.0], **common | {"lower": None, "upper": -12.0, "interval": Interval.parse("upper bound")})
    run = hand_made([*rows([-0.1, -3.0, -6.0, -5.0], classes=2, **common), *(replace(row, sample_id="b") for row in bounded)])
    content = gather(run, Choice())
    found = Page.of(page([content], images=False)[0])
    verdict = found.text("r1-verdict")
    assert "Probability that noise changes the prediction" in verdict
    assert "≤ 1 of " in verdict
    assert "the prediction changes in ≤ 1 of" in verdict
    assert "log10_p_fail above -0.301" in verdict
    assert "%" not in " ".join(line.value for line in tiles(content)[1].lines)
    assert "1 of 5" in verdict
    assert "≤ " in found.text("r1-robustness")
    assert "below 0.5" not in found.text("r1-robustness")
    first = next(attributes for tag, attributes in found.tags if tag == "li" and "data-rank" in attributes)
    assert first["data-name"] == "0"


def test_probabilities_and_log_scales_share_no_table(without_pictures: None) -> None:
    log10 = rows([-3.0, -6.0], quantity="log10_p_fail", estimator="splitting")
    found = Page.of(page([gather(hand_made([*rows([0.2, 0.8]), *log10]), Choice())], images=False)[0])
    assert found.text("r1-robustness").count("is better") == 2
    assert found.text("r1-agreement") == ""


def test_no_result_at_all() -> None:
    with pytest.raises(NothingLeftError, match="has no results to report"):
        gather(hand_made([]), Choice())


def test_skipped_samples_and_warnings_are_told(without_pictures: None) -> None:
    skipped = [{"sample_id": f"<{i}>\x1b\u202e", "reason": "is <b>grey</b>"} for i in range(25)]
    run = hand_made(rows([0.2, 0.8] * 2), skipped=skipped, warnings=["<i>mean</i> is odd\x1b[2J"])
    text, _ = page([gather(run, Choice())], images=False)
    found = Page.of(text)
    assert "25 samples skipped" in found.text("r1-made")
    assert "and 5 more" in found.text("r1-made")
    assert r"<i>mean</i> is odd\x1b[2J" in found.text("r1-verdict")
    assert not re.search("<b>|\x1b|\u202e", text)


def test_gates_stand_with_the_verdict(content: Content, without_pictures: None) -> None:
    gate = {**DECISION, "covers": "nothing"}
    found = Page.of(page([replace(content, decisions=(gate, {**gate, "lower": None, "upper": None, "verdict": "pass"}))], images=False)[0])
    assert "mean >= 0.9 fail 0.5000 0.4000 to 0.6000 (95%) these 12 images" in found.text("r1-verdict")
    assert "mean >= 0.9 pass 0.5000 – these 12 images" in found.text("r1-verdict")


def test_the_same_page_every_time(run: Run, content: Content, without_pictures: None) -> None:
    assert page([gather(run, Choice())]) == page([content])


def test_package_data_is_there() -> None:
    from importlib.resources import files

    names = {path.name for path in files("robaudit.report.html").iterdir() if isinstance(path, Path)}
    assert {"report.html.j2", "style.css", "script.js"} <= names
