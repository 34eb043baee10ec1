"""Gates on certified accuracy, and what the other gates make of certified radii: lower bounds of
the true ones."""

from __future__ import annotations

from typing import Any

import pytest

from robaudit.errors import RobauditError, RunError, SpecError
from robaudit.estimates import Covers
from robaudit.gates.decide import Decision, decide
from robaudit.levels import LevelName
from robaudit.names import Part
from robaudit.numerics.intervals import clopper_pearson
from robaudit.runs.rows import Row
from robaudit.spec.gate_grammar import Gate
from tests.certified_rows import MIXED, certificate, pictured, stating
from tests.golden import Golden
from tests.radius_rows import radius, run_of
from tests.unit.engine.tools import known
from tests.unit.gates.tools import gate


def decided(text: str, rows: list[Row] = MIXED, **options: Any) -> Decision:
    (one,) = decide(run_of(rows), [gate(text)], **options)
    return one


@pytest.mark.parametrize(
    ("text", "verdict", "value"),
    [
        ("certified_accuracy(radius=0.5) >= 0.375", "pass", 0.375),
        ("certified_accuracy(radius=0.5) >= 0.376", "fail", 0.375),
        ("certified_accuracy(radius=0.51) >= 0.376", "fail", 0.125),
        ("certified_accuracy(radius=0, norm=l2, sigma=0.25) >= 0.6", "pass", 0.625),
        ("certified_accuracy(radius=0.9, estimator=certified_radius) <= 0.2", "pass", 0.125),
        ("certified_accuracy(radius=2) <= 0", "pass", 0.0),
    ],
)
def test_for_these_images_it_is_what_was_certified(text: str, verdict: str, value: float) -> None:
    one = decided(text)
    assert (one.verdict, one.estimate.value, one.estimate.lower, one.estimate.upper, one.exact) == (
        verdict,
        value,
        value,
        value,
        True,
    )
    assert one.gate.result == "certified_radius:norm=l2"


def test_for_others_like_them_it_is_a_share() -> None:
    one = decided("certified_accuracy(radius=0.5) >= 0.3", population=True)
    assert (one.estimate.lower, one.estimate.upper) == pytest.approx(
        [float(end) for end in clopper_pearson(3, 8)]
    )
    assert (one.verdict, one.estimate.covers) == ("inconclusive", Covers.POPULATION)
    assert known(one.more) > 8


def test_it_says_how_sure_the_certificates_are() -> None:
    rows = [
        certificate(i, 0.4, of, stated=stating(0.01, 0.5)) for i, of in enumerate((0, 0, None, 1))
    ]
    one = decided("certified_accuracy(radius=0.4) >= 0.5", [*rows, certificate(9, 0.4, label=None)])
    assert one.evidence == (
        "nothing certified for 1 of 4 images; another class than the label certified for 1; "
        "a certificate is false with probability at most 0.01; 1 image without a label left out"
    )


@pytest.mark.parametrize("population", [False, True])
def test_at_another_radius_than_the_question_it_is_a_lower_bound(population: bool) -> None:
    """It may pass from below, and neither fail nor pass from above."""
    rows = [
        certificate(i, 0.5 if i % 4 else 0.2, stated=stating(0.001, 0.9, 0.5)) for i in range(200)
    ]
    for text, verdict in (
        (">= 0.6", "pass"),
        (">= 0.9", "inconclusive"),
        ("<= 0.9", "inconclusive"),
        ("<= 0.6", "fail"),
    ):
        one = decided(f"certified_accuracy(radius=0.4) {text}", rows, population=population)
        assert (one.verdict, one.estimate.value, one.estimate.upper) == (verdict, 0.75, 1.0)
        assert ("run it without decide" in one.evidence) is (verdict == "inconclusive")
        assert (
            decided(
                f"certified_accuracy(radius=0.5) {text}", rows, population=population
            ).estimate.upper
            != 1.0
        )


@pytest.mark.parametrize("population", [False, True])
def test_a_radius_that_nothing_could_have_reached(population: bool) -> None:
    rows = [certificate(i, 0.5, stated=stating(0.01, 0.5)) for i in range(5)]
    one = decided("certified_accuracy(radius=0.75) >= 0.1", rows, population=population)
    assert (one.verdict, one.estimate.value, one.estimate.upper) == ("fail", 0.0, 0.0)
    assert one.evidence.startswith("certified_radius could not have certified more than 0.5: ")
    assert decided("certified_accuracy(radius=0.5) >= 1", rows).verdict == "pass"


@pytest.mark.parametrize(
    "text",
    [
        "certified_accuracy(radius=0.5) >= 1.5",
        "certified_accuracy(radius=-1) >= 0.5",
        "certified_accuracy(radius=1, norm=l1) >= 0.5",
    ],
)
def test_gates_that_are_refused(text: str, golden: Golden) -> None:
    with pytest.raises(RobauditError) as error:
        decided(text)
    golden(error.value)


def test_runs_without_certificates_labels_or_a_single_result(golden: Golden) -> None:
    with pytest.raises(RobauditError) as caught:
        decided("certified_accuracy(radius=1) >= 0.5", [radius(0, 1.0)])
    golden(caught.value)
    with pytest.raises(RunError) as caught:
        decided("certified_accuracy(radius=1) >= 0.5", [certificate(0, 1.0, label=None)])
    golden(caught.value)
    with pytest.raises(RobauditError) as caught:
        decide(pictured(), [gate("certified_accuracy(radius=1) >= 0.5")])
    golden(caught.value)


# --- other gates: a lower bound may pass from below, never from above


@pytest.mark.parametrize("population", [False, True])
def test_a_mean_of_lower_bounds_passes_from_below_only(population: bool) -> None:
    rows = [certificate(i, 0.4 + 0.01 * (i % 5)) for i in range(200)]
    assert decided("mean >= 0.4", rows, population=population).verdict == "pass"
    for text in (
        "mean <= 9",
        "mean >= 0.5",
        "median <= 9",
        "p05 <= 9",
        "share_below(t=0.3) >= 0",
        "worst_class <= 9",
    ):
        assert decided(text, rows, population=population).verdict == (
            "pass" if text.startswith("share") else "inconclusive"
        ), text
    assert decided("median >= 0.4", rows, population=population).verdict == "pass"
    assert decided("share_below(t=0.3) <= 0.1", rows, population=population).verdict == "pass"
    assert (
        decided("share_below(t=0.5) >= 0.5", rows, population=population).verdict == "inconclusive"
    )
    assert (
        "lower bounds: the true values may be as large as the range allows"
        in decided("mean >= 0.4", rows).evidence
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "certified_accuracy(radius=1/4) >= .6",
            Gate("certified_accuracy", ">=", 0.6, arguments={"radius": 0.25}),
        ),
        (
            "certified_accuracy(norm=linf, radius=8/255, sigma=.5) <= 1",
            Gate(
                "certified_accuracy",
                "<=",
                1.0,
                level=0.5,
                level_name=LevelName.SIGMA,
                part=Part.norm("linf"),
                arguments={"radius": 8 / 255},
            ),
        ),
    ],
)
def test_how_it_is_written(text: str, expected: Gate) -> None:
    assert gate(text) == expected


def test_a_radius_is_a_number() -> None:
    with pytest.raises(SpecError, match="radius is 'big', not a number"):
        gate("certified_accuracy(radius=big) >= 0.9")
