"""Recommendations follow their rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from robaudit.estimates import Estimate
from robaudit.stats.summary import Share
from robaudit.validation.deviations import Error, ReferenceComparison
from robaudit.validation.verdicts import advice, remark, verdict
from tests.levels import sigma

ERROR = Error(0.0, 0.001, 0.005, 0.001, 0.002, None, "7", 0.9, 0.95)
GOOD = ReferenceComparison(
    "good", sigma(0.1), "p_robust", 50, 50, 0.9, 0.9, ERROR, 0.99, None, 65, 0, 0.03
)


def one(
    name: str = "good",
    *,
    seconds: float = 0.03,
    rank: float | None = 0.99,
    coverage: Share | None = None,
    **error: Any,
) -> ReferenceComparison:
    return replace(
        GOOD,
        estimator=name,
        seconds=seconds,
        rank=rank,
        coverage=coverage,
        error=replace(ERROR, **error),
    )


TAYLOR = one("taylor", seconds=0.001, rank=0.6, bias=0.08, bias_error=0.01, rmse=0.1)


def test_the_issues_example() -> None:
    assert advice([TAYLOR, one("logit_gaussian"), one("mc", seconds=5.0)]) == [
        "taylor is biased by +0.080: use logit_gaussian",
        "use logit_gaussian: RMSE 0.005, the cheapest that is accurate (30 ms per image)",
    ]


def test_where_nothing_is_good_mc_is_the_answer() -> None:
    assert advice([TAYLOR]) == ["taylor is biased by +0.080: use mc"]
    assert advice([replace(one("mine", rmse=0.2), kind="mc")]) == [
        "mine has an RMSE of 0.200 per image: use mc with more draws"
    ]
    assert advice([one("coarse", rmse=0.2)]) == ["coarse has an RMSE of 0.200 per image: use mc"]


def test_other_quantities_have_no_part_in_the_choice() -> None:
    softmax = replace(
        GOOD, estimator="softmax", quantity="confidence", error=None, seconds=1e-5, rank=0.5
    )
    assert (
        verdict(softmax)
        == "estimates confidence, not p_robust: only its order is compared (rank correlation 0.500)"
    )
    assert advice([softmax]) == []
    assert advice([softmax, GOOD])[0].startswith("use good")


@pytest.mark.parametrize(
    ("comparison", "says"),
    [
        (one(), "is accurate for each image"),
        (
            one(rmse=0.02, sampling=0.019),
            "is accurate for means and rankings; RMSE per image 0.020; mostly sampling error: "
            "more draws would help",
        ),
        (
            one(rmse=0.02, sampling=0.001),
            "is accurate for means and rankings; RMSE per image 0.020; not sampling error: more "
            "draws would hardly help",
        ),
        (one(rmse=0.06), "is inaccurate for each image: RMSE 0.060, no significant bias"),
        (TAYLOR, "is biased: overestimates by 0.080 on average"),
        (
            one(bias=-0.08, bias_error=0.01, rmse=0.1),
            "is biased: underestimates by 0.080 on average; its ranking of the images holds",
        ),
        (
            one(coverage=Share(30, 50, Estimate(0.6, 0.45, 0.74))),
            "is accurate for each image; its intervals are too narrow: coverage 60%",
        ),
        (
            replace(GOOD, touched=0),
            "no verdict: the noise affects none of these images: stronger noise or more images "
            "would tell more",
        ),
        (
            one(reference=0.008, rmse=0.001),
            "no verdict: the reference is too coarse (standard error 0.008); give it more draws",
        ),
        (replace(GOOD, images=9), "9 images are too few for a verdict (at least 10)"),
    ],
)
def test_verdicts(comparison: ReferenceComparison, says: str) -> None:
    assert verdict(comparison) == says


def test_what_limits_the_comparison_is_said() -> None:
    assert remark([GOOD], [0.5] * 40) == ""
    assert remark([GOOD], [1.0] * 48 + [0.5, 0.6]).startswith(
        "this noise affects only 2 of 50 images"
    )
    untouched = replace(GOOD, touched=0)
    for limited in (one(reference=0.008, rmse=0.001), untouched):
        assert advice([limited]) == []
    assert remark([untouched], [1.0] * 50) == "", "the verdict says it"


def test_noise_that_does_the_same_every_time_needs_no_judge() -> None:
    exact = replace(GOOD, exact=True, touched=0)
    assert verdict(exact).startswith("is exact")
    assert (advice([exact]), remark([exact], [0.0, 1.0])) == ([], "")
