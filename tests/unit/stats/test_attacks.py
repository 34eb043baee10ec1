"""Attacks are reported as failed where another row of the same sample, level and class proves it, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from robaudit.quantities import NO_INTERVAL, Interval, IntervalKind
from robaudit.results import LossNorm
from robaudit.rows import Row
from robaudit.stats.attacks import contradicted, is_attack

ATTACK = Row(
    sample_id="0",
    label=3,
    predicted=3,
    correct=True,
    noise="uniform",
    level_name="eps",
    level=0.1,
    estimator="adversarial_loss",
    quantity="loss",
    value=5.0,
    lower=5.0,
    upper=None,
    std_error=None,
    flips_to=4,
    forwards=512,
    backwards=510,
    note="",
    interval=Interval(IntervalKind.LOWER_BOUND),
    loss=LossNorm(3),
)
NORM = replace(
    ATTACK,
    estimator="qnorm_path:q=1000",
    value=4.0,
    lower=3.5,
    interval=Interval(IntervalKind.OTHER, remark="between chains"),
    loss=LossNorm(3, 4.5),
)
SAYS = "the attack failed: qnorm_path found a loss of {}"


def note(*others: Row, attack: Row = ATTACK) -> str:
    """The note of an attack beside other rows, which stay as they are, in any order."""
    forwards, backwards = contradicted([attack, *others]), contradicted([*others, attack])
    assert forwards[1:] == backwards[:-1] == list(others)
    assert forwards[0] == backwards[-1]
    assert replace(forwards[0], note="") == replace(attack, note="")
    return forwards[0].note


def test_an_attack_that_nothing_beats() -> None:
    assert note() == ""
    assert note(NORM) == ""
    assert note(replace(NORM, value=5.0, loss=LossNorm(3, 5.0 * (1 + 5e-5)))) == ""


def test_a_sampler_that_met_a_larger_loss() -> None:
    assert note(replace(NORM, loss=LossNorm(3, 5.21437))) == SAYS.format("5.214")


def test_a_norm_above_the_maximum() -> None:
    """With its whole interval; a value above that its error explains proves nothing."""
    assert note(replace(NORM, value=5.9, lower=5.5, loss=LossNorm(3))) == SAYS.format("5.5")
    assert note(replace(NORM, value=5.9, lower=4.9, loss=LossNorm(3))) == ""
    assert note(replace(NORM, value=5.9, lower=None, loss=LossNorm(3))) == SAYS.format("5.9")
    assert note(replace(NORM, value=5.5, loss=LossNorm(3, 6.25))) == SAYS.format("6.25")


def test_the_largest_of_several() -> None:
    others = [replace(NORM, loss=LossNorm(3, loss), estimator=f"e{loss}") for loss in (5.5, 7.5, 6.5)]
    assert note(*others) == "the attack failed: e7.5 found a loss of 7.5"


def test_another_attack() -> None:
    better = replace(ATTACK, estimator="longer", value=5.5)
    assert [row.note for row in contradicted([ATTACK, better])] == ["the attack failed: longer found a loss of 5.5", ""]


@pytest.mark.parametrize(
    "change",
    [
        {"level": 0.2},
        {"noise": "other"},
        {"level_name": "sigma"},
        {"quantity": "p_robust"},
        {"loss": LossNorm(4, 9.0)},
        {"loss": None},
    ],
)
def test_rows_of_something_else_prove_nothing(change: dict[str, object]) -> None:
    other = {"value": 9.0, "loss": LossNorm(3, 9.0), **change}
    assert note(replace(NORM, **other)) == ""  # type: ignore[arg-type]


def test_a_note_that_was_there_stays() -> None:
    beaten = replace(NORM, loss=LossNorm(3, 6.0))
    assert note(beaten, attack=replace(ATTACK, note="first")) == "first; " + SAYS.format("6")


def test_only_losses_with_a_lower_bound_are_attacks() -> None:
    assert is_attack(ATTACK)
    assert not is_attack(NORM)
    assert not is_attack(replace(ATTACK, quantity="p_robust"))
    assert not is_attack(replace(ATTACK, interval=NO_INTERVAL))


def test_a_norm_below_another_of_the_same_order() -> None:
    """By more than both errors: the chains met no bad region that plain copies saw."""
    low, other = replace(NORM, value=1.0, lower=0.9, upper=1.1), replace(NORM, estimator="qnorm_mc:q=1000", value=2.0, lower=1.5, upper=2.6)
    assert [row.note for row in contradicted([low, other])] == ["too low: qnorm_mc:q=1000 is 2", ""]
    for change in ({"lower": 1.05}, {"lower": None}, {"estimator": "qnorm_mc:q=10"}, {"loss": LossNorm(1)}, {"level": 0.2}):
        assert contradicted([low, replace(other, **change)])[0].note == ""
