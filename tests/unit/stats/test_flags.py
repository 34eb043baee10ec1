"""Flagged samples: order, certainty, filters and counts."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from robaudit.errors import NothingLeftError, RobauditError
from robaudit.quantities import Interval, Quantity
from robaudit.report.flagged_section import flags_table
from robaudit.runs.rows import Row
from tests.golden import Golden
from tests.rows import ROW, flag


def valued(*values: float, width: float | None = 0.1, **more: object) -> list[Row]:
    """Rows a, b, c, ... with these values and an interval of +- ``width``."""
    bounds = [(None, None) if width is None else (value - width, value + width) for value in values]
    return [
        replace(ROW, sample_id=chr(97 + i), value=value, lower=lower, upper=upper, **more)  # type: ignore[arg-type]
        for i, (value, (lower, upper)) in enumerate(zip(values, bounds, strict=True))
    ]


def test_the_document_names_the_classes() -> None:
    found = flag(valued(0.1, 0.2, flips_to=2, label=None)).document(["cat", "dog"])["samples"]
    names = [{key: value for key, value in one.items() if key.endswith("_name")} for one in found]
    assert names == [{"label_name": None, "predicted_name": "cat", "flips_to_name": None}] * 2, (
        "class 2 has no name"
    )
    assert list(found[0])[1:5] == ["label", "label_name", "predicted", "predicted_name"]


def test_what_is_wrong_without_noise_is_not_broken_by_it() -> None:
    """Two confirmed, one of which noise turns into its label, and a likely one that is right."""
    broken, repaired, likely = valued(0.1, 0.2, 0.45, flips_to=1)
    repaired = replace(repaired, label=1, correct=False)
    flagged = flag([broken, repaired, likely, *valued(0.9)])
    assert (flagged.beyond, flagged.confirmed, flagged.broken) == (3, 2, 1)
    assert (flagged.wrong, flagged.repaired) == (1, 1)
    assert [sample.correct for sample in flagged.samples] == [True, False, True]
    assert [sample.is_repaired for sample in flagged.samples] == [False, True, False]
    unlabelled = flag(valued(0.1, label=None, correct=None))
    assert (unlabelled.wrong, unlabelled.broken) == (0, 1)
    assert unlabelled.samples[0].correct is None


def test_the_list_says_which_samples_were_right() -> None:
    wrong = [replace(row, correct=False, label=1) for row in valued(0.1, 0.2)]
    table = flags_table(flag([*wrong, replace(valued(0.3)[0], sample_id="z")]))
    place = [column.head for column in table.columns].index("clean")
    assert [row[place].text for row in table.rows] == ["wrong", "wrong", "right"]
    assert [row[-1].text for row in table.rows] == ["confirmed"] * 3
    assert [row[-1].tone for row in table.rows] == ["", "", "bad"]
    assert (
        "2 of the 3 are wrong without noise, and all of those flip to the label." in table.lines[1]
    )
    unlabelled = flags_table(flag(valued(0.1, label=None, correct=None)))
    assert "clean" not in [column.head for column in unlabelled.columns]


def ids(samples: tuple[object, ...]) -> str:
    return "".join(getattr(sample, "id", "?") for sample in samples)


def test_worst_first_with_certainty_and_counts() -> None:
    flagged = flag(valued(0.9, 0.45, 0.1, 0.55, 0.3))
    assert ids(flagged.samples) == "ceb"
    assert [sample.certainty for sample in flagged.samples] == ["confirmed", "confirmed", "likely"]
    assert (
        flagged.total,
        flagged.beyond,
        flagged.confirmed,
        flagged.likely,
        flagged.undecided,
        flagged.with_interval,
    ) == (
        5,
        3,
        2,
        1,
        1,
        5,
    )
    assert flag(valued(0.5, 0.4)).beyond == 1, "the threshold itself is not below it"


def test_bottom_lists_whether_beyond_or_not() -> None:
    flagged = flag(valued(0.9, 0.45, 0.7, 0.95), bottom=2)
    assert ids(flagged.samples) == "bc"
    assert flagged.samples[1].certainty == "no"
    assert flagged.beyond == 1


def test_ties_keep_the_order_of_the_rows() -> None:
    assert ids(flag(valued(0.3, 0.1, 0.3, 0.1, 0.3)).samples) == "bdace"


def test_without_interval_nothing_is_sure() -> None:
    flagged = flag(valued(0.1, 0.9, width=None))
    assert [sample.certainty for sample in flagged.samples] == ["no interval"]
    assert (flagged.confirmed, flagged.likely, flagged.undecided, flagged.with_interval) == (
        0,
        0,
        0,
        0,
    )


def test_only_filters_and_nothing_left_is_its_own_error(golden: Golden) -> None:
    rows = [*valued(0.1, 0.2), *valued(0.3, correct=False), *valued(0.4, correct=None, label=None)]
    wrong = flag(rows, only="wrong")
    assert (wrong.total, wrong.filtered, wrong.samples[0].value) == (1, 3, 0.3)
    assert flag(rows, only="correct").total == 2
    with pytest.raises(NothingLeftError) as error:
        flag(rows[:2], only="wrong")
    golden(error.value)


def test_values_that_are_not_finite_are_never_ranked() -> None:
    flagged = flag([*valued(0.1), replace(ROW, value=math.nan)], bottom=5)
    assert (len(flagged.samples), flagged.not_finite) == (1, 1)


def test_where_lower_is_better_everything_turns_round() -> None:
    loss = Quantity("loss", "nats", 0.0, math.inf, higher_is_better=False)
    flagged = flag(valued(1.0, 3.0, 2.05, 1.95, quantity="loss"), below=2.0, quantity=loss)
    assert ids(flagged.samples) == "bc"
    assert [sample.certainty for sample in flagged.samples] == ["confirmed", "likely"]
    assert (flagged.beyond, flagged.confirmed, flagged.likely, flagged.undecided) == (2, 1, 1, 1)


@pytest.mark.parametrize("options", [{"below": math.nan}, {"bottom": 0}])
def test_bad_options_are_named(options: dict[str, float], golden: Golden) -> None:
    with pytest.raises(RobauditError) as error:
        flag(valued(0.1), **options)
    golden(error.value)


def test_a_bound_that_the_true_value_may_be_better_than_makes_nothing_likely() -> None:
    """A radius known to be larger than .3, and a certificate of .3, say nothing about .5; a flip
    found at .3 does."""
    for kind, certainty in (
        ("censored", "undecided"),
        ("lower bound", "undecided"),
        ("upper bound", "confirmed"),
    ):
        found = flag(
            valued(0.3, width=None, quantity="radius", interval=Interval.parse(kind)),
            below=0.5,
            quantity=Quantity("radius", "l2", 0.0, math.inf),
        )
        assert [sample.certainty for sample in found.samples] == [certainty]
        assert (found.beyond, found.likely, found.bounds, found.undecided) == (
            1,
            0,
            int(certainty == "undecided"),
            0,
        )
