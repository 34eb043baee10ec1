"""Gates on comparisons: equal models, broken runs, thresholds that none can reach."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtri

from robaudit.compare.difference import compare
from robaudit.compare.matching import why_unpaired
from robaudit.errors import RobauditError
from robaudit.numerics.intervals import antithetic_difference, paired_difference
from robaudit.quantities import NO_INTERVAL, Interval
from robaudit.report.comparison_tables import comparison_tables
from robaudit.results import Votes
from robaudit.runs.rows import Row
from tests.golden import Golden
from tests.unit.compare.tools import between, bits, decided, made, shares, width, with_bits
from tests.unit.engine.tools import known
from tests.unit.gates.tools import row

COUNTS = ("share_worse <= 0", "newly_flagged <= 0")


def test_equal_models_do_not_fail_by_their_number_of_images() -> None:
    rng = np.random.default_rng(5)
    repeats = 12
    images = 250
    draws = 50
    fails = dict.fromkeys((*COUNTS, "share_worse <= 0.01"), 0)
    looked_worse = 0
    for _ in range(repeats):
        p = rng.uniform(0.1, 0.9, images)
        found = between(
            shares(rng.binomial(draws, p), draws), shares(rng.binomial(draws, p), draws)
        )
        looked_worse += found.groups[0].worse
        for population in (False, True):
            for one in decided(found, *fails, population=population):
                fails[str(one.gate).replace("(estimator=mc, sigma=0.1)", "")] += (
                    one.verdict == "fail"
                )
    assert looked_worse > repeats * images * 0.005, "so many look worse by themselves"
    for count in fails.values():
        assert count <= 2 * repeats * 0.05 + 3 * math.sqrt(2 * repeats * 0.05)


def test_counts_of_samples_that_changed() -> None:
    rng = np.random.default_rng(6)
    p = np.full(300, 0.95)
    q = p.copy()
    q[:10] = 0.1
    found = between(shares(rng.binomial(1000, p), 1000), shares(rng.binomial(1000, q), 1000))
    share, flagged, within = decided(
        found, "share_worse <= 0.02", "newly_flagged <= 9", "newly_flagged <= 10"
    )
    assert (
        flagged.estimate.value,
        flagged.estimate.lower,
        flagged.estimate.upper,
        flagged.verdict,
        within.verdict,
    ) == (
        10,
        10,
        10,
        "fail",
        "pass",
    )
    assert 10 / 300 <= known(share.estimate.lower) <= share.estimate.value < 0.1
    assert share.verdict == "fail"
    assert known(share.estimate.upper) > 0.5, (
        "that an unchanged image is not a little worse cannot be shown"
    )
    (population,) = decided(found, "share_worse <= 0.5", population=True)
    assert population.estimate.covers == "population"
    assert 0.0 < known(population.estimate.lower) < 10 / 300


def test_one_model_has_no_worse_sample_whatever_the_seed() -> None:
    rng = np.random.default_rng(7)
    p = np.full(200, 0.5)
    rows = [shares(rng.binomial(100, p), 100) for _ in range(2)]
    found = compare(made(rows[0], 0), made(rows[1], 1))
    assert found.groups[0].worse > 0
    for one in decided(found, *COUNTS):
        assert (one.verdict, one.estimate.lower, one.estimate.upper, one.estimate.method) == (
            "pass",
            0,
            0,
            "the same model",
        )
    broken = compare(made(rows[0], 0), made(shares(rng.binomial(100, p / 5), 100), 1))
    assert decided(broken, COUNTS[0])[0].verdict == "fail", (
        "the same weights, and not the same results"
    )


DROPS = (
    "mean_drop <= 0.01",
    "worst_class_drop <= 0.02",
    "noisy_accuracy_drop <= 0.02",
    "newly_flagged <= 0",
    "share_worse <= 0.5",
)


def broken(rows: list[Row], count: int) -> list[Row]:
    nothing = {
        "value": math.nan,
        "lower": None,
        "upper": None,
        "votes": None,
        "interval": NO_INTERVAL,
    }
    return [replace(one, **nothing) if i < count else one for i, one in enumerate(rows)]  # type: ignore[arg-type]


def test_a_run_that_broke_passes_nothing(golden: Golden) -> None:
    labels = [i % 3 for i in range(60)]
    base = shares([999] * 60, 1000, labels)
    assert {one.verdict for one in decided(between(base, base), *DROPS[:4])} == {"pass"}
    for one in decided(between(base, broken(base, 30)), *DROPS):
        assert one.verdict == "inconclusive", one
        assert "without a finite value in one run or both: 30 of 60 samples" in one.evidence
    (lowest,) = decided(between(base, broken(base, 30)), "mean_drop <= 0.9")
    assert lowest.estimate.upper == pytest.approx(0.5, abs=0.01), (
        "half of them unchanged, half at the end of the range"
    )
    gone = compare(
        made(base), made(base[30:], 1, "b", skipped=[one.sample_id for one in base[:30]])
    )
    assert gone.left_out()["only_base"] == 30
    for one in decided(gone, *DROPS, "accuracy_drop <= 0.1"):
        assert one.verdict == "inconclusive", one
        assert "skipped by the new run: 30 of 60 samples" in one.evidence
    (class_gone,) = decided(
        between(base, broken(sorted(base, key=lambda one: one.label or 0), 20)),
        "worst_class_drop <= 0.5",
    )
    assert (class_gone.verdict, len(class_gone.classes), class_gone.estimate.upper) == (
        "inconclusive",
        3,
        1.0,
    )
    with pytest.raises(RobauditError) as error:
        between(base, broken(base, 60))
    golden(error.value)


def test_samples_that_were_not_asked_for_are_named() -> None:
    base = shares([999] * 60, 1000)
    (fewer,) = decided(
        compare(made(base), made(base[:10], 1, "b", skipped=["x"])), "mean_drop <= 0.01"
    )
    assert fewer.verdict == "pass"
    assert "50 samples in the base run only: not covered by this gate" in fewer.evidence
    found = compare(made(base[:10]), made(base, 5))
    assert (found.samples, len(found.matching.only_new), found.matching.only_base) == (10, 50, [])
    assert "50 samples are only in the new run: " in " ".join(found.matching.warnings)
    assert "noise draws are unpaired, as the seeds differ (0 and 5)" in " ".join(
        found.matching.warnings
    )
    assert "1 sample skipped by the new run and not in the base run" in fewer.evidence


def logs(values: list[float]) -> list[Row]:
    known = {
        "estimator": "splitting",
        "quantity": "log10_p_fail",
        "interval": Interval.parse("lognormal:4 repeats"),
    }
    return [row(i, value, value - 0.05, value + 0.05, **known) for i, value in enumerate(values)]


def test_the_population_on_a_range_without_end() -> None:
    found = between(logs([-8.0] * 30), logs([-7.9] * 30))
    (measured,) = decided(found, "mean_drop <= 0.2")
    assert measured.verdict == "pass"
    for one in decided(
        found, "mean_drop <= 0.2", "worst_class_drop <= 5", "mean_drop <= -9", population=True
    ):
        assert (one.verdict, one.estimate.lower, one.estimate.upper) == (
            "inconclusive",
            -math.inf,
            math.inf,
        )


def test_the_same_noise_unpaired_adds_the_distances() -> None:
    rng = np.random.default_rng(8)
    missed = 0
    repeats = 25
    for _ in range(repeats):
        u = rng.random((20, 100))
        # one flips where the other does not
        found = between(shares((u < 0.5).sum(1), 100), shares((u > 0.5).sum(1), 100), seed=0)
        ends = known(found.groups[0].mean.measured)
        lower, upper = known(ends.bounds)
        missed += not lower <= 0 <= upper
    assert missed <= repeats * 0.05 + 3 * math.sqrt(repeats * 0.05)
    assert "does not record which draws kept the class" in found.groups[0].why
    rare = between(logs([-3.0] * 4), logs([-2.0] * 4), seed=0).groups[0]
    assert rare.why == "the base run's draws are not a fixed number of votes"
    assert known(known(rare.mean.measured).upper) - 1 == pytest.approx(
        (0.05**2 * 4) ** 0.5 / 4 * 2
    ), "once each"
    assert rare.changed[0].difference.lower == pytest.approx(0.9), "not 1 - 0.05 sqrt 2"


def test_errors_of_images_that_stopped_by_themselves_add_whatever_their_noise() -> None:
    """Both may lean the same way."""

    def stopped(value: float) -> list[Row]:
        return [
            row(i, value, value - 0.1, value + 0.1, interval=Interval.parse("confidence-sequence"))
            for i in range(4)
        ]

    group = between(stopped(0.8), stopped(0.4), seed=1).groups[0]
    assert group.changed[0].difference.lower == pytest.approx(-0.6), "not -0.4 - 0.1 sqrt 2"


def test_other_numbers_of_draws_are_paired_on_the_first() -> None:
    u = np.random.default_rng(9).random((30, 160))
    base = bits((u < 0.7)[:, :100])
    new = bits(u < 0.65)
    group = between(base, new, seed=0).groups[0]
    first = between(base, bits((u < 0.65)[:, :100]), seed=0).groups[0]
    assert (group.how, group.draws, group.cut, first.cut) == (
        "common random numbers",
        100,
        (100, 160),
        None,
    )
    assert group.mean == first.mean
    assert group.changed == first.changed
    assert group.counts == first.counts
    turned = between(new, base, seed=0).groups[0]
    assert turned.mean.value == -group.mean.value
    labelled = known(
        between(bits((u < 0.7)[:, :100], [0] * 30), bits(u < 0.65, [0] * 30), seed=0)
        .groups[0]
        .noisy_accuracy
    )
    assert labelled.new == pytest.approx((u < 0.65).mean()), "accuracy under noise is of all draws"
    lower, upper = known(known(labelled.measured).bounds)
    assert lower < labelled.value < upper


def test_antithetic_pairs_of_both_runs_are_pooled() -> None:
    def pairs(kept: NDArray[np.bool_]) -> list[Row]:
        apart = (kept[:, ::2] != kept[:, 1::2]).sum(1)
        found = zip(bits(kept), apart.tolist(), strict=True)
        stated = Interval.parse("antithetic pairs")
        return [
            replace(one, interval=stated, votes=one.votes and replace(one.votes, split=split))
            for one, split in found
        ]

    u = np.random.default_rng(11).random((20, 100))
    base = u < 0.7
    new = u < 0.65
    (group,) = between(pairs(base), pairs(new), seed=0).groups
    change = (new.astype(int) - base).reshape(20, 50, 2).sum(2)
    whole, half = [((change == -n).sum(), (change == n).sum()) for n in (2, 1)]
    assert group.mean.measured is not None
    assert group.mean.measured.ends == pytest.approx(antithetic_difference(half, whole, 1000))


def test_unequal_numbers_of_draws_are_paired_image_by_image() -> None:
    rng = np.random.default_rng(13)
    outside = [0, 0]
    repeats = 20
    numbers = [32] * 20 + [64] * 10 + [192] * 10
    p = np.linspace(0.6, 0.99, 40)
    q = np.linspace(0.57, 0.985, 40)
    for _ in range(repeats):
        u = [rng.random((1, n)) for n in numbers]
        base, new = (
            [replace(bits(one < of[i])[0], sample_id=str(i)) for i, one in enumerate(u)]
            for of in (p, q)
        )
        found = between(base, new, seed=0)
        group = found.groups[0]
        ends = found.groups[0].mean.measured
        assert ends is not None
        outside[0] += ends.lower > (q - p).mean()
        outside[1] += ends.upper < (q - p).mean()
    assert max(outside) <= 0.025 * repeats + 3 * math.sqrt(0.025 * repeats)
    assert (group.how, group.draws, group.cut) == ("common random numbers", None, None)
    printed = "\n".join(
        line
        for one in comparison_tables(found, made(base).info, made(new).info, None)
        for line in one.lines
    )
    assert "paired on the noise draws that both runs took of each, which saves 9" in printed
    assert group.mean.value == pytest.approx(
        np.mean([(one < q[i]).mean() - (one < p[i]).mean() for i, one in enumerate(u)])
    )
    apart = between(
        [with_bits(row) for row in base], [with_bits(row) for row in new], seed=0
    ).groups[0]
    assert apart.how == "unpaired"
    assert ends is not None
    assert width(ends) < 0.3 * width(known(apart.mean.measured))
    assert 0.8 < known(group.variance_saved) < 1


def test_classes_hold_together() -> None:
    u = np.random.default_rng(10).random((12, 80))
    found = between(
        bits(u < 0.8, [i % 4 for i in range(12)]), bits(u < 0.7, [i % 4 for i in range(12)]), seed=0
    )
    for one in found.groups[0].classes:
        lost = int(((u < 0.8) & (u >= 0.7))[one.index :: 4].sum())
        lower, upper = paired_difference(lost, 0, 3 * 80, 1 - 0.05 / 4)
        assert known(one.difference.measured).ends == pytest.approx((float(lower), float(upper)))


def test_noise_of_another_device_is_another() -> None:
    rows = bits(np.random.default_rng(11).random((4, 20)) < 0.5)
    cards = {
        ("cpu", "cpu (a processor)"): "",
        ("cpu", "cuda:0 (A100)"): "noise on cpu differs from noise on cuda (A100)",
        ("cuda:0 (A100)", "cuda:1 (A100)"): "",
        (
            "cuda:0 (A100)",
            "cuda:0 (H100)",
        ): "noise on cuda (A100) differs from noise on cuda (H100)",
    }
    for (one, other), why in cards.items():
        group = compare(made(rows, device=one), made(rows, 0, "b", device=other)).groups[0]
        assert (group.how, group.why) == ("unpaired" if why else "common random numbers", why)


def test_how_many_more_decide_the_worst_class() -> None:
    u = np.random.default_rng(12).random((20, 40))
    labels = [i % 2 for i in range(20)]
    before = u < 0.9
    now = u < np.where(np.arange(20) % 2, 0.85, 0.9)[:, None]

    def at(times: int) -> tuple[str, int | None]:
        """With so many times the draws, and the same values."""
        found = between(
            bits(np.tile(before, times), labels), bits(np.tile(now, times), labels), seed=0
        )
        (one,) = decided(found, "worst_class_drop <= 0.08")
        assert (one.more is None) == ("more draws per image" not in one.evidence)
        return one.verdict, one.more

    verdict, more = at(1)
    assert verdict == "inconclusive"
    assert more is not None
    assert at(math.ceil(1 + more / 40)) == ("pass", None)
    times = (1 + more / 40) / (
        1 + ndtri(0.8) / ndtri(0.975)
    ) ** 2  # decide in half of the cases; the rest is for values that move
    assert at(math.ceil(1.3 * times)) == ("pass", None)
    assert at(max(1, math.floor(0.5 * times)))[0] == "inconclusive"


def test_one_unit_in_one_line() -> None:
    base = [
        replace(one, correct=i % 2 == 0) for i, one in enumerate(shares([9] * 40, 10, [0] * 40))
    ]
    new = [replace(one, correct=i % 4 != 1) for i, one in enumerate(shares([9] * 40, 10, [0] * 40))]
    found = between(base, new)
    first = next(iter(comparison_tables(found, made(base).info, made(new).info, None))).lines[0]
    assert first.startswith(
        "clean accuracy  50.0% -> 75.0%, +25.0 points (exact for these images; images like "
        "these: [+"
    )
    assert first.endswith("] points)")
    assert (
        f"[{math.floor(1000 * known(known(found.clean_accuracy).population.lower)) / 10:+.1f}, "
        in first
    )


def test_counts_either_way_round() -> None:
    flagged_before = between(shares([100] * 30, 1000), shares([90] * 30, 1000))
    assert decided(flagged_before, "newly_flagged <= 0")[0].verdict == "pass"
    (one, share) = decided(
        between(logs([-3.0] * 20), logs([-3.0] * 19 + [-0.05])),
        "newly_flagged <= 0",
        "share_worse <= 0",
    )
    assert (one.verdict, one.estimate.lower, one.estimate.upper) == ("fail", 1, 1), (
        "lower is better"
    )
    assert (share.verdict, share.estimate.lower) == ("fail", 1 / 20)
    assert decided(between(logs([-3.0] * 20), logs([-2.0] * 20)), "mean_drop <= 0.5")[
        0
    ].estimate.value == pytest.approx(1.0)
    (fixed, better) = decided(
        between(logs([-0.1] + [-3.0] * 19), logs([-3.0] * 20)),
        "newly_flagged <= 0",
        "share_worse <= 0",
    )
    assert (fixed.verdict, better.estimate.lower, better.estimate.upper) == ("pass", 0, 19 / 20)


def test_why_draws_are_not_paired() -> None:
    (known,) = bits(np.array([[True, False, True]]))
    assert why_unpaired(known, known) == ""
    for change, says in (
        ({"interval": Interval.parse("confidence-sequence")}, "stopped adaptively"),
        ({"interval": Interval.parse("lognormal:chains")}, "are not a fixed number of votes"),
        ({"votes": None}, "are not a fixed number of votes"),
        ({"votes": Votes((2, 1))}, "does not record which draws kept the class"),
    ):
        other: Row = replace(known, **change)
        assert says in why_unpaired(known, other)
        assert why_unpaired(other, known).startswith("the base run")
