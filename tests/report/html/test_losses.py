"""The section from the average to the worst case: its numbers are the summary's, and the robustness tables leave them to it."""

from __future__ import annotations

import pytest

from robaudit.levels import LevelChoice
from robaudit.quantities import LOSS, P_ROBUST
from robaudit.report import numbers
from robaudit.report.html.content import Choice, Content, gather
from robaudit.report.html.markdown import markdown_report
from robaudit.report.html.render import page
from robaudit.report.words import MEASUREMENT, POPULATION
from robaudit.rows import Row
from robaudit.stats.summary import summarise
from tests.report.html.test_markdown import tables
from tests.report.html.tools import HOSTILE, Page, hand_made, rows
from tests.report.pictures import made

TITLE = "Mean loss by q (nats, lower is better)"


def content(results: tuple[Row, ...], choice: Choice | None = None) -> Content:
    return gather(hand_made(results, quantities=[one.document() for one in (P_ROBUST, LOSS)]), choice or Choice())


def shown(one: Content) -> Page:
    return Page.of(page([one], images=False)[0])


LOSSES = tuple(made.losses(20, (1, 10, 100), eps=(0.1, 0.2)).rows)
BOTH = (*rows([0.2, 0.8] * 10), *LOSSES)


def test_every_mean_is_in_the_table(without_pictures: None) -> None:
    found = shown(content(BOTH))
    assert found.open == []
    head, *lines = found.tables[TITLE]
    assert head == ["noise", "estimator", "q", "images", "mean", POPULATION, MEASUREMENT, "median", "95th percentile"]
    groups = {(str(group.key.at), group.key.estimator): group for group in summarise(LOSSES, {LOSS.name: LOSS})}
    assert len(lines) == len(groups) == 14
    for at, estimator, q, images, mean, ends, these, median, tail in lines:
        group = groups[at, estimator if q == "∞ (attack)" else f"{estimator}:q={q}"]
        marked = "~" if estimator == "adversarial_loss" else ""
        assert mean == marked + numbers.number(group.mean.value, group.mean.lower, group.mean.upper, LOSS)
        assert ends == numbers.interval(group.mean.lower, group.mean.upper)
        assert these == numbers.interval(group.mean.measured_lower, group.mean.measured_upper)
        assert images == "20"
        assert (median, tail) == (numbers.quantile(group.median, LOSS), numbers.quantile(group.p95, LOSS))
    words = found.text("r1-losses")
    assert "Lower is better." in words
    assert "About loss-q." in words
    assert found.count("a", href="#r1-losses") == 1


def test_the_worst_images_have_a_table_of_their_own(without_pictures: None) -> None:
    one = content(LOSSES)
    found = shown(one)
    for losses in one.losses:
        head, *lines = found.tables[f"Images with the highest loss, qnorm_path, {losses.at}"]
        assert head == ["sample", "q=1", "q=10", "q=100", "adversarial_loss"]
        assert [line[0] for line in lines] == [sample.id for sample in losses.worst]
        assert [float(line[3]) for line in lines] == pytest.approx([sample.value for sample in losses.worst], abs=5e-4)


def test_losses_by_q_are_in_no_table_of_robustness(without_pictures: None) -> None:
    found = shown(content(BOTH))
    robustness = found.text("r1-robustness")
    assert "p_robust" in robustness
    assert "qnorm" not in robustness
    assert "adversarial_loss" not in robustness
    alone = shown(content(LOSSES))
    assert alone.text("r1-robustness") == ""
    assert alone.count("a", href="#r1-robustness") == 0
    assert alone.text("r1-losses") != ""
    attack = tuple(row for row in LOSSES if row.estimator == "adversarial_loss")
    without_q = shown(content(attack))
    assert "adversarial_loss" in without_q.text("r1-robustness")
    assert without_q.text("r1-losses") == ""


def test_a_run_without_losses_has_no_such_section(html: str) -> None:
    assert "r1-losses" not in html


def test_the_distribution_leaves_them_out_too() -> None:
    pytest.importorskip("matplotlib")
    text, _ = page([content(BOTH)], images=False)
    found = Page.of(text)
    assert found.open == []
    assert "Robustness of the images by noise level" in found.text("r1-robustness")  # the title where all is p_robust
    assert "Loss from the average to the worst case" in found.text("r1-losses")
    assert "the 6 images with the highest loss at each noise level" in found.text("r1-losses")
    assert "q-th root of the mean of loss^q" not in text  # the section says it above the picture


def test_a_choice_narrows_the_section(without_pictures: None) -> None:
    one = content(LOSSES, Choice(levels=LevelChoice(levels=(0.2,))))
    assert [str(losses.at) for losses in one.losses] == ["uniform eps 0.2"]
    assert {line[0] for line in shown(one).tables[TITLE][1:]} == {"uniform eps 0.2"}


def test_markdown_has_the_table_and_what_it_means() -> None:
    text = markdown_report([content(BOTH)])
    assert "\n### Between the average and the worst case\n\nMean loss by q" in text
    (lines,) = [lines for lines in tables(text) if lines[0].startswith("| noise | estimator | q |")]
    assert len(lines) == 2 + 14
    assert "where two differ by more than their intervals, the higher one is closer to the true value." in text
    assert "failed" not in text
    assert "\n\n\n" not in text
    assert "### Robustness\n" in text
    assert "### Robustness\n" not in markdown_report([content(LOSSES)])
    assert "Between the average" not in markdown_report([content(rows([0.2, 0.8]))])


def test_attacks_that_failed_are_told(without_pictures: None) -> None:
    weak = tuple(made.row(i, 1.0, estimator=name, quantity=LOSS.name) for i in range(3) for name in ("a:q=1", "a:q=2"))
    weak += tuple(made.row(i, 0.5 + 0.4 * i, estimator="adversarial_loss", quantity=LOSS.name) for i in range(3))
    assert "The attack failed for 2 of 3 images" in markdown_report([content(weak)])


def test_names_from_data_stay_text() -> None:
    pytest.importorskip("matplotlib")
    one = content(tuple(made.losses(6, ids=HOSTILE).rows))
    text, _ = page([one], images=False)
    assert Page.of(text).open == []
    assert Page.of(text).count("script") == 1
    assert "\x1b" not in text
    assert all(name not in text for name in (HOSTILE[0], HOSTILE[3]))
