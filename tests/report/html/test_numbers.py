"""Every cell of a page's tables, its tiles and its cards against what the rows say."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from robaudit.quantities import NO_INTERVAL, Interval
from robaudit.report import numbers
from robaudit.report.gallery import RunImages
from robaudit.report.html.cards import show, thumbnail
from robaudit.report.html.content import Choice, Content, gather
from robaudit.report.html.render import page
from robaudit.report.html.verdict import tiles
from robaudit.report.words import certainties
from robaudit.rows import Row
from robaudit.stats.agreement import Pair, agreement
from robaudit.stats.classes import class_bias
from robaudit.stats.summary import GroupSummary
from robaudit.store.run import Run
from tests.report.html.tools import Page, hand_made, rows

POPULATION, MEASUREMENT = "95% interval, images like these", "95% interval, these images"
DRAWS, IMAGES = 20, 12
RIGHT = {0.1: [20, 19, 17, 18, 16, 20, 15, 19, 20, 20, 11, 20], 0.3: [18, 9, 12, 15, 10, 20, 4, 14, 20, 17, 6, 19]}
NAMES = ["ant", "bee", "cow"]


def _mc(sigma: float) -> list[Row]:
    """By votes; image 10 is predicted to be of another class than it is."""
    found = []
    for i, row in enumerate(rows([count / DRAWS for count in RIGHT[sigma]], classes=3, level=sigma)):
        wrong, count = i == 10, RIGHT[sigma][i]
        predicted = (i + 1) % 3 if wrong else i % 3
        votes = [0, 0, 0]
        votes[predicted], votes[(predicted + 1) % 3] = count, DRAWS - count
        made = replace(row, predicted=predicted, correct=not wrong, votes=tuple(votes), forwards=21 + i, backwards=3)
        found.append(replace(made, lower=max(0.0, row.value - 0.15), upper=min(1.0, row.value + 0.05)))
    return found


def _others(sigma: float) -> list[Row]:
    """taylor without intervals, and log10 of a probability with crooked ones, of the same images."""
    values = [0.9 - 0.02 * i * (1 + sigma) for i in range(IMAGES)]
    taylor = rows(values, classes=3, level=sigma, estimator="taylor", lower=None, upper=None, interval=NO_INTERVAL, forwards=1, backwards=2)
    logs = [-3.0 - 0.5 * (i % 3) - 0.01 * i + sigma for i in range(IMAGES)]
    split = rows(
        logs, classes=3, level=sigma, estimator="splitting", quantity="log10_p_fail", interval=Interval.parse("lognormal:4 repeats")
    )
    crooked = [replace(row, lower=row.value - 0.8, upper=row.value + 0.3, forwards=5000 + 7 * i) for i, row in enumerate(split)]
    return [*taylor, *crooked]


@pytest.fixture(scope="module")
def made() -> Run:
    found = [row for sigma in RIGHT for row in (*_mc(sigma), *_others(sigma))]
    data = {"where": "gone.npz", "class_names": NAMES, "labelled": IMAGES, "sha256": "1" * 64}
    seconds = {
        "mc@gaussian:sigma=0.1": 6.0,
        "mc@gaussian:sigma=0.3": 12.0,
        "taylor@gaussian:sigma=0.1": 0.24,
        "splitting@gaussian:sigma=0.3": 2400.0,
    }
    clean = {"value": 11 / 12, "count": 11, "total": 12, "lower": 0.6152, "upper": 0.9979}
    return hand_made(found, data=data, seconds=seconds, clean_accuracy=clean)


@pytest.fixture(scope="module")
def said(made: Run) -> Content:
    return gather(made, Choice())


@pytest.fixture
def found(said: Content, without_pictures: None) -> Page:
    return Page.of(page([said], images=False)[0])


def _down(value: float, digits: int) -> float:
    return float(math.floor(round(value * 10**digits, 6)) / 10**digits)


def _to(lower: float | None, upper: float | None, digits: int = 3) -> str:
    """An interval, rounded outwards."""
    return "–" if lower is None or upper is None else f"{_down(lower, digits):.{digits}f} to {-_down(-upper, digits):.{digits}f}"


def _half_up(value: float) -> str:
    """Three decimals; 0.0625 is 0.063, although its neighbour in binary may be smaller."""
    return f"{value + math.copysign(1e-9, value):.3f}"


def _percents(lower: float, upper: float) -> str:
    return f"{_down(100 * lower, 1):.1f}% to {-_down(-100 * upper, 1):.1f}%"


def _group(content: Content, estimator: str, sigma: float) -> GroupSummary:
    (one,) = [group for group in content.groups if (group.key.estimator, group.key.at.level) == (estimator, sigma)]
    return one


def _values(run: Run, estimator: str, sigma: float) -> list[float]:
    return [row.value for row in run.rows if (row.estimator, row.at.level) == (estimator, sigma)]


def test_accuracy(found: Page, said: Content) -> None:
    heads, clean, *lines = found.tables["Clean accuracy, and accuracy under noise"]
    assert heads == ["noise", "estimator", "accuracy", POPULATION, MEASUREMENT]
    assert clean == ["no noise", "", "91.7%", "61.5% to 99.8%", "exact"]
    assert [line[:2] for line in lines] == [["sigma 0.1", "mc"], ["sigma 0.3", "mc"]]
    for (_, _, value, kind, these), sigma in zip(lines, RIGHT, strict=True):
        one = _group(said, "mc", sigma).noisy_accuracy
        assert one is not None
        assert one.measured_lower is not None
        assert one.measured_upper is not None
        assert value == f"{100 * one.value:.1f}%"
        assert one.value == pytest.approx((sum(RIGHT[sigma]) - RIGHT[sigma][10]) / (DRAWS * IMAGES))  # no vote of image 10 is for its label
        assert (kind, these) == (_percents(one.lower, one.upper), _percents(one.measured_lower, one.measured_upper))
        assert kind != these


@pytest.mark.parametrize("quantity", ["p_robust", "log10_p_fail"])
def test_robustness(found: Page, said: Content, made: Run, quantity: str) -> None:
    (table,) = [table for caption, table in found.tables.items() if caption.startswith(f"{quantity}: ")]
    shares = ["below 0.5", "below 0.9"] if quantity == "p_robust" else []
    heads, *lines = table
    assert heads == [
        "estimator",
        "noise",
        "mean",
        POPULATION,
        MEASUREMENT,
        "median",
        "5th percentile" if shares else "95th percentile",
        *shares,
    ]
    groups = [group for group in said.groups if group.key.quantity == quantity]
    assert len(lines) == len(groups)
    for line, group in zip(lines, groups, strict=True):
        values, mean = _values(made, group.key.estimator, group.key.at.level), group.mean
        mark = "~" if group.key.estimator == "taylor" else ""
        assert line[:2] == [group.key.estimator, f"sigma {group.key.at.level:g}"]
        assert line[2] == f"{mark}{np.mean(values):.3f}"
        assert line[3] == _to(mean.lower, mean.upper)
        assert line[4] == _to(mean.measured_lower, mean.measured_upper) != line[3]
        quantiles = [numbers.quantile(one, said.quantity(quantity)) for one in (group.median, group.p05 if shares else group.p95)]
        assert line[5:7] == quantiles
        if mark:
            assert quantiles == [f"~{np.quantile(values, q):.3f}" for q in (0.5, 0.05)]
        assert line[7:] == [numbers.share(one) for one in (group.below_half, group.below_ninety) if one is not None]
        assert len(line[7:]) == len(shares)
        if group.below_half is not None and group.below_ninety is not None:
            assert group.below_half.count == sum(value < 0.5 for value in values)
            assert group.below_ninety.count == sum(value < 0.9 for value in values)


def test_cost(found: Page, made: Run) -> None:
    heads, *lines = found.tables["Time and passes"]
    assert heads[2:6] == ["seconds", "seconds per image", "forward passes per image", "backward passes per image"]
    by_name = {(line[0], line[1]): line[2:] for line in lines}
    assert len(lines) == 6
    assert by_name["mc", "sigma 0.1"] == ["6.00", "0.5", "26.5", "3", "clopper-pearson"]
    assert by_name["mc", "sigma 0.3"] == ["12.0", "1", "26.5", "3", "clopper-pearson"]
    assert by_name["taylor", "sigma 0.1"] == ["0.24", "0.02", "1", "2", "none"]
    assert by_name["taylor", "sigma 0.3"] == ["–", "–", "1", "2", "none"]
    assert by_name["splitting", "sigma 0.3"] == ["2,400", "200", "5,038.5", "0", "lognormal:4 repeats"]


def test_agreement(found: Page, said: Content, made: Run) -> None:
    heads, *lines = found.tables["Pairs of estimators, on the same images"]
    assert heads == ["noise", "quantity", "estimators", "images", "mean difference", POPULATION, "RMS difference", "rank correlation"]
    assert len(lines) == 2
    for line, sigma, group in zip(lines, RIGHT, said.agreements, strict=True):
        (one,) = group.pairs
        away = np.subtract(_values(made, "taylor", sigma), _values(made, "mc", sigma))
        ends = _to(one.lower, one.upper)
        assert one.lower < away.mean() < one.upper
        assert line[:6] == [f"sigma {sigma:g}", "p_robust", "taylor − mc", "12", f"{away.mean():+.3f}", ends]
        assert line[6:] == [f"{np.sqrt(np.mean(away**2)):.4f}", f"{one.rank:.3f}"]


def test_other_images_are_not_compared(made: Run) -> None:
    """Other samples; the same in another order, or fewer of them, are paired by their ids."""
    known = [row for row in made.rows if row.at.level == 0.1 and row.estimator == "mc"]
    taylor = [row for row in made.rows if row.at.level == 0.1 and row.estimator == "taylor"]
    others = [replace(row, sample_id=f"x{row.sample_id}") for row in taylor]
    assert gather(hand_made([*known, *others]), Choice()).agreements == ()
    (whole,) = _pairs([*known, *taylor])
    (turned,) = _pairs([*known, *taylor[::-1]])
    (fewer,) = _pairs([*known, *taylor[1:]])
    assert (turned.images, turned.difference, turned.rms, turned.rank) == (whole.images, whole.difference, whole.rms, whole.rank)
    assert fewer.images == whole.images - 1
    away = [b.value - a.value for a, b in zip(known[1:], taylor[1:], strict=True)]
    assert fewer.difference == pytest.approx(np.mean(away))


def test_the_table_has_every_pair_that_is_drawn(made: Run, without_pictures: None) -> None:
    """Of six estimators four are drawn; the other two are compared with the first."""
    rows = [row for row in made.rows if row.at.level == 0.1 and row.estimator == "mc"]
    many = [replace(row, estimator=name) for name in "abcdef" for row in rows]
    content = gather(hand_made(many), Choice())
    lines = Page.of(page([content], images=False)[0]).tables["Pairs of estimators, on the same images"][1:]
    drawn = agreement(hand_made(many)).drawn
    assert len(drawn) == 6
    assert len(lines) == 8
    assert {f"{pair.up} − {pair.across}" for pair in drawn} < {line[2] for line in lines}


def _pairs(rows: Sequence[Row]) -> tuple[Pair, ...]:
    (found,) = gather(hand_made(rows), Choice()).agreements
    return found.pairs


@pytest.mark.parametrize(("estimator", "worst"), [("mc", "bee"), ("splitting", "ant")])
def test_classes_and_the_weakest(made: Run, estimator: str, worst: str, without_pictures: None) -> None:
    content = gather(made, Choice(estimators=(estimator,)))
    shown, (tile,) = Page.of(page([content], images=False)[0]), [one for one in tiles(content) if one.title == "Least robust class"]
    for sigma, line in zip(RIGHT, tile.lines, strict=True):
        mine = [row for row in made.rows if (row.estimator, row.at.level) == (estimator, sigma)]
        quantity = content.quantity(mine[0].quantity)
        bias = class_bias(mine, by="label", class_names=NAMES, quantity=quantity)
        means = {i: float(np.mean([row.value for row in mine if row.label == i])) for i in range(3)}
        order = sorted(means, key=lambda i: means[i] if quantity.higher_is_better else -means[i])
        heads, *lines = shown.tables[f"By label, {estimator}, sigma {sigma:g}"]
        assert heads == ["class", "images", "mean", POPULATION, MEASUREMENT, "median", "from the others", "p", "significant?"]
        assert [cells[0] for cells in lines] == [NAMES[i] for i in order]
        for cells, i in zip(lines, order, strict=True):
            one = bias.classes[i]
            assert one.mean.measured_lower is not None
            assert one.mean.measured_upper is not None
            assert cells[1:3] == ["4", _half_up(means[i])]
            kind, these = _to(one.mean.lower, one.mean.upper), _to(one.mean.measured_lower, one.mean.measured_upper)
            assert cells[3:5] == [kind, these]
            assert kind != these
        assert line.where == f"sigma {sigma:g}"
        assert line.value == NAMES[order[0]]
        value = f"{100 * float(_half_up(means[order[0]])):.1f}%" if estimator == "mc" else _half_up(means[order[0]])
        assert line.detail.startswith(value)
    assert tile.lines[0].value == worst


def test_a_class_without_a_name_is_called_one() -> None:
    content = gather(hand_made(rows([0.2, 0.9] * 4, classes=2)), Choice())
    (line,) = next(one for one in tiles(content) if one.title == "Least robust class").lines
    assert line.value == "class 0"


def test_the_tiles(found: Page, said: Content, made: Run) -> None:
    right, mean, *_ = tiles(said)
    assert [(line.where, line.value, line.detail) for line in right.lines[:1]] == [
        ("no noise", "91.7%", "61.5% to 99.8% · 11 of 12 images")
    ]
    for sigma, line, kept in zip(RIGHT, right.lines[1:], mean.lines, strict=True):
        group = _group(said, "mc", sigma)
        noisy = group.noisy_accuracy
        assert noisy is not None
        where, value = f"sigma {sigma:g}", f"{100 * noisy.value:.1f}%"
        assert (line.where, line.value, line.detail) == (where, value, _percents(noisy.lower, noisy.upper))
        value = f"{100 * np.mean(_values(made, 'mc', sigma)):.1f}%"
        assert (kept.where, kept.value, kept.detail) == (where, value, _percents(group.mean.lower, group.mean.upper))
    for line in (*right.lines, *mean.lines):
        assert f"{line.where} {line.value} {line.detail}" in found.text("r1-verdict")


def test_certainties_add_up(without_pictures: None) -> None:
    """Two confirmed, two whose interval contains the threshold, one without an interval; two more whose value is above it."""
    ends: Sequence[tuple[float, float | None, float | None]] = (
        (0.1, 0.0, 0.2), (0.2, 0.1, 0.3), (0.45, 0.3, 0.6), (0.46, 0.3, 0.6), (0.4, None, None),
        (0.55, 0.4, 0.7), (0.6, 0.45, 0.8), (0.9, 0.8, 1.0),
    )  # fmt: skip
    made = [replace(row, lower=low, upper=high) for row, (_, low, high) in zip(rows([v for v, _, _ in ends]), ends, strict=True)]
    for most in (60, 1):
        content = gather(hand_made(made), Choice(most=most))
        assert certainties(content.flagged[0]) == "2 confirmed, 2 likely, 1 without an interval; 2 of the others undecided"
        assert "5 of 8 images are flagged" in Page.of(page([content], images=False)[0]).text("r1-verdict")
    sure = gather(hand_made([*made[:2], made[-1]]), Choice())
    assert certainties(sure.flagged[0]) == "2 confirmed"
    edge = gather(hand_made([made[5], made[-1]]), Choice())
    assert certainties(edge.flagged[0]) == "1 undecided"


def test_noisy_images_are_those_of_the_run(run: Run, content: Content, html: str) -> None:
    """Of every card and example: the first draw at its noise level, and not the clean image."""
    sources = {attributes["alt"]: attributes["src"] for tag, attributes in Page.of(html).tags if tag == "img"}
    images = RunImages(run, [row.sample_id for row in run.rows])
    wanted = [(card, gallery.flagged.key.at) for gallery in show(content).galleries for card in gallery.cards]
    assert len(wanted) > 6
    by_name = {one.id: one.id for flagged in content.flagged for one in flagged.samples}
    for card, at in wanted:
        clean = images.clean(by_name[card.name])
        uri, noisy = thumbnail(clean).uri, thumbnail(images.noisy(card.name, clean, at)).uri
        assert uri != noisy
        assert sources[f"sample {card.name} without noise"] == uri
        assert sources[f"sample {card.name} with noise: sigma {at.level:g}"] == noisy
    (example, *_) = show(content).examples
    assert [level for level, _ in example.noisy] == ["sigma 0.1", "sigma 0.3"]
    assert len({example.clean.uri, *(thumb.uri for _, thumb in example.noisy)}) == 3
    for (_, a), (_, b) in itertools.pairwise(example.noisy):
        assert a.uri != b.uri
