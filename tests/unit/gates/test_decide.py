"""What decides a gate: the verdict, what is refused, and how many draws or images would decide."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri

from robaudit.errors import NothingLeftError, SpecError
from robaudit.gates.decide import EXIT_CODES, decide, judge, overall
from robaudit.gates.decision_text import number, numbers
from robaudit.numerics.intervals import antithetic_share
from robaudit.quantities import Interval
from robaudit.results import Votes
from robaudit.runs.run import Run
from tests.golden import Golden
from tests.unit.engine.tools import known
from tests.unit.gates.tools import gate, row, run_of, votes


@pytest.fixture(scope="module")
def run() -> Run:
    """mc at two noise levels, softmax and a biased estimator at one."""
    rows = [
        *votes([95, 90, 99, 80], 100, [0, 1, 0, 1]),
        *votes([50, 60, 70, 80], 100, [0, 1, 0, 1], level=0.25),
    ]
    rows += [row(i, 0.9, estimator="softmax", quantity="confidence") for i in range(4)]
    rows += [
        row(i, 0.9, 0.88, 0.92, estimator="mmse", interval=Interval.parse("jackknife:approximate"))
        for i in range(4)
    ]
    return run_of(rows)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("mean(estimator=mc, sigma=0.1) >= 0.85", "pass"),
        ("mean(estimator=mc, sigma=0.1) >= 0.9", "inconclusive"),
        ("mean(estimator=mc, sigma=0.1) >= 0.95", "fail"),
        ("mean(estimator=mc, sigma=0.1) <= 0.85", "fail"),
        ("mean(estimator=mc, sigma=0.1) <= 0.9", "inconclusive"),
        ("mean(estimator=mc, sigma=0.1) <= 0.95", "pass"),
        ("mean(estimator=mmse) >= 0.5", "inconclusive"),
        ("mean(estimator=softmax) >= 0.5", "inconclusive"),
        ("accuracy >= 1", "pass"),
        ("accuracy <= 0.99", "fail"),
        ("mean(estimator=mc, sigma=0.2501) <= 0.7", "pass"),
    ],
)
def test_the_interval_decides(run: Run, text: str, verdict: str) -> None:
    (found,) = decide(run, [gate(text)])
    assert found.verdict == verdict
    assert (found.more is None) == (verdict != "inconclusive" or found.estimate.lower is None)


def test_ends_on_the_threshold() -> None:
    assert judge(">=", 0.5, 0.5, 0.6) == "pass"
    assert judge(">=", 0.5, 0.4, 0.5) == "inconclusive"
    assert judge("<=", 0.5, 0.4, 0.5) == "pass"
    assert judge("<=", 0.5, 0.5, 0.6) == "inconclusive"
    assert judge(">=", 0.5, -math.inf, 0.4) == "fail"


def test_all_gates_together(run: Run) -> None:
    passed, open_, failed = decide(
        run, [gate(f"mean(estimator=mc, sigma=0.1) >= {t}") for t in (0.85, 0.9, 0.95)]
    )
    assert overall([passed]) == "pass"
    assert overall([passed, open_]) == "inconclusive"
    assert overall([passed, open_], "pass") == "pass"
    assert overall([passed, open_], "fail") == "fail"
    assert overall([passed, open_, failed], "pass") == "fail"
    assert EXIT_CODES == {"pass": 0, "fail": 1, "inconclusive": 4}


@pytest.mark.parametrize(
    "text",
    [
        "mean >= 0.9",
        "mean(sigma=0.1) >= 0.9",
        "noisy_accuracy >= 0.9",
        "noisy_accuracy(estimator=mmse) >= 0.9",
        "mean(estimator=mcc) >= 0.9",
        "mean(estimator=mc, sigma=0.3) >= 0.9",
        "mean(estimator=mmse) <= 1.5",
        "share_below(estimator=mmse, t=50) <= 0.5",
        "accuracy(sigma=0.1) >= 0.9",
        "class_gap(estimator=mmse) <= 0.1",
    ],
)
def test_what_is_refused(run: Run, text: str, golden: Golden) -> None:
    with pytest.raises(SpecError) as error:
        decide(run, [gate(text)])
    golden(error.value)


def test_a_point_decides_only_where_there_is_no_interval(run: Run) -> None:
    found, other = decide(
        run,
        [gate("mean(estimator=softmax) >= 0.9"), gate("mean(estimator=mc, sigma=0.1) >= 0.9")],
        point=True,
    )
    assert (
        found.verdict,
        found.estimate.lower,
        found.estimate.upper,
        found.estimate.method,
        found.estimate.covers,
    ) == (
        "pass",
        None,
        None,
        "none",
        "nothing",
    )
    assert numbers(found) == "~0.9000"
    assert "point estimate" in found.evidence
    assert other.verdict == "inconclusive"


@pytest.mark.parametrize("population", [False, True])
def test_an_interval_that_leaves_out_a_bias_decides_nothing(run: Run, population: bool) -> None:
    for text in ("mean >= 0.5", "p05 >= 0.5", "share_below(t=0.5) <= 0.5", "worst_class >= 0.5"):
        name, rest = text.split(" ", 1)
        asked = gate(
            f"{name.removesuffix(')')}{', ' if ')' in name else '('}estimator=mmse) {rest}"
        )
        (found,) = decide(run, [asked], population=population)
        assert (found.verdict, found.estimate.lower, found.estimate.covers) == (
            "inconclusive",
            None,
            "nothing",
        )
        assert found.evidence == "the error of mmse is not known (--point: let the value decide)"
        (found,) = decide(run, [asked], population=population, point=True)
        assert found.verdict == "pass"


def test_the_votes_of_the_copies_decide_for_an_approximation() -> None:
    """The fit is at .99 and its interval above .98, but of 64 copies each 56 keep the class: 24 of
    32 pairs do, and 8 are split."""
    fit = {
        "votes": Votes((56, 8), split=8),
        "interval": Interval.parse("jackknife:approximate"),
        "estimator": "logit_gaussian",
        "label": 0,
    }
    run = run_of([row(i, 0.99, 0.98, 0.995, **fit) for i in range(50)])
    value = 56 / 64
    (lower, upper) = antithetic_share(50 * 56, 50 * 8, 50 * 64)
    for text, verdict in (
        ("mean >= 0.95", "fail"),
        ("mean >= 0.85", "pass"),
        ("mean >= 0.87", "inconclusive"),
    ):
        (found,) = decide(run, [gate(text)])
        assert (found.verdict, found.estimate.value) == (verdict, value)
        assert found.estimate.lower == pytest.approx(float(lower))
        assert found.estimate.upper == pytest.approx(float(upper))
        assert found.estimate.method == "antithetic pairs:pooled"
        assert found.evidence.startswith(
            "by the votes of its copies, not by the approximation of logit_gaussian"
        )
    assert decide(run, [gate("p05 >= 0.95")])[0].verdict == "fail"
    assert decide(run, [gate("mean >= 0.95")], population=True)[0].verdict == "fail"
    assert decide(run, [gate("noisy_accuracy >= 0.95")])[0].estimate.value == value


def test_nothing_left() -> None:
    with pytest.raises(NothingLeftError):
        decide(run_of([row(0, math.nan)]), [gate("mean >= 0.5")])


def test_no_labels(golden: Golden) -> None:
    rows = votes([90, 80], 100, [None, None])
    with pytest.raises(SpecError) as error:
        decide(run_of(rows), [gate("accuracy >= 0.5")])
    golden(error.value)
    with pytest.raises(SpecError) as error:
        decide(run_of(rows), [gate("noisy_accuracy >= 0.5")])
    golden(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "mean >= 0.72",
        "median >= 0.7",
        "worst_class >= 0.7",
        "noisy_accuracy >= 0.72",
        "p05 >= 0.55",
    ],
)
def test_so_many_more_draws_would_decide(text: str) -> None:
    """With that many the same values decide; a mean is decided with half of all, too, and not with
    a tenth less: the rest is for values that move."""
    kept = [72, 76, 74, 79, 68, 71, 73, 60, 75, 82] * 2
    labels = [0, 1] * 10
    (found,) = decide(run_of(votes(kept, 100, labels)), [gate(text)])
    assert found.verdict == "inconclusive"
    assert f"{known(found.more):,} more draws per image" in found.evidence

    def verdict(draws: int) -> str:
        return decide(
            run_of(votes([round(k * draws / 100) for k in kept], draws, labels)), [gate(text)]
        )[0].verdict

    enough = 100 * math.ceil((100 + known(found.more)) / 100)  # the same shares
    assert verdict(enough) == "pass"
    if text.startswith(("median", "p05")):
        return
    half = (100 + known(found.more)) / (1 + ndtri(0.8) / ndtri(0.975)) ** 2
    assert verdict(100 * math.ceil(1.1 * half / 100)) == "pass"
    fewer = round(0.9 * half) // 100 * 100
    assert fewer < 100 or verdict(fewer) == "inconclusive"


def test_so_many_more_images_would_decide() -> None:
    (found,) = decide(run_of(votes([90, 70] * 5, 100)), [gate("mean >= 0.75")], population=True)
    again = votes([90, 70] * math.ceil((10 + known(found.more)) / 2), 100)
    assert decide(run_of(again), [gate("mean >= 0.75")], population=True)[0].verdict == "pass"
    assert "more images would decide" in found.evidence


def test_no_number_decides_a_value_on_the_threshold() -> None:
    (found,) = decide(run_of(votes([90, 70], 100)), [gate("mean >= 0.8")])
    assert (found.verdict, found.more) == ("inconclusive", None)
    assert "no number of draws per image would decide it" in found.evidence


@given(
    st.floats(0, 1), st.floats(0, 1), st.sampled_from([ROUND_FLOOR, ROUND_CEILING, ROUND_HALF_EVEN])
)
def test_no_digit_hides_the_side_of_the_threshold(
    value: float, threshold: float, rounding: str
) -> None:
    printed = Decimal(number(value, threshold, rounding))
    exact = Decimal(repr(value))
    limit = Decimal(repr(threshold))
    assert printed.compare(limit) == exact.compare(limit)
    if rounding == ROUND_FLOOR:
        assert printed <= exact
    if rounding == ROUND_CEILING:
        assert printed >= exact


def test_numbers_close_to_the_threshold() -> None:
    assert number(0.8999996, 0.9, ROUND_HALF_EVEN) == "0.8999996"
    assert number(0.9, 0.9, ROUND_HALF_EVEN) == "0.9000"
    assert number(0.93612, 0.9, ROUND_HALF_EVEN) == "0.9361"
    assert number(-math.inf, 0.9, ROUND_FLOOR) == "-inf"


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.floats(0, 1), st.integers(0, 2))
def test_intervals_hold_the_value_and_narrow_with_draws(
    kept: list[int], t: float, unknown: int
) -> None:
    """Of any votes: ends in order and within the range, around the value; none wider with four
    times the draws."""
    rows = votes(kept, 50, [i % 2 for i in range(len(kept))])
    rows += [row(100 + i, math.nan, label=i % 2) for i in range(unknown)]
    four = votes([4 * k for k in kept], 200, [i % 2 for i in range(len(kept))]) + rows[len(kept) :]
    for text in (
        "mean >= 0.5",
        "median >= 0.5",
        "p05 >= 0.5",
        f"share_below(t={t!r}) <= 0.5",
        "worst_class >= 0.5",
    ):
        few, many = (decide(run_of(some), [gate(text)])[0] for some in (rows, four))
        assert few.estimate.lower is not None
        assert few.estimate.upper is not None
        assert 0.0 <= few.estimate.lower <= few.estimate.upper <= 1.0
        if not unknown:
            assert few.estimate.lower - 1e-12 <= few.estimate.value <= few.estimate.upper + 1e-12
        if text.startswith(("mean", "worst")):
            assert (many.estimate.upper or 0.0) - (
                many.estimate.lower or 0.0
            ) <= few.estimate.upper - few.estimate.lower + 1e-12
            wide = decide(run_of(rows), [gate(text)], confidence=0.999)[0]
            assert (wide.estimate.lower or 0.0) <= few.estimate.lower + 1e-12
            assert (wide.estimate.upper or 0.0) >= few.estimate.upper - 1e-12
