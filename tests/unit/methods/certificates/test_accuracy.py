"""Certified accuracy: what counts, its curve and its summaries, and runs that have none."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robaudit.errors import RunError
from robaudit.methods.certificates.accuracy import (
    AccuracyAtRadii,
    Certificates,
    CertifiedAccuracy,
    certificates_of,
    certified_accuracy,
)
from robaudit.numerics.intervals import clopper_pearson
from robaudit.quantities import CERTIFIED
from robaudit.runs.rows import Row
from tests.certified_rows import AT, MIXED, certificate, pictured, stating
from tests.golden import Golden
from tests.radius_rows import radius, run_of
from tests.unit.engine.tools import known


def one(rows: list[Row]) -> Certificates:
    (found,) = certificates_of(run_of(rows))
    return found


def accuracy(rows: list[Row]) -> CertifiedAccuracy:
    return certified_accuracy(one(rows))


def test_an_image_counts_where_its_label_is_certified() -> None:
    found = accuracy(MIXED)
    assert {r: found.at(r).count for r in (0.0, 0.2, 0.21, 0.4, 0.5, 0.51, 0.9, 0.91, 5.0)} == {
        0.0: 5,
        0.2: 5,
        0.21: 4,
        0.4: 4,
        0.5: 3,
        0.51: 1,
        0.9: 1,
        0.91: 0,
        5.0: 0,
    }
    half = found.at(0.5)
    assert (half.total, half.value) == (8, 3 / 8)
    assert (known(half.estimate.lower), known(half.estimate.upper)) == pytest.approx(
        [float(end) for end in clopper_pearson(3, 8)]
    )
    assert (found.wrong.count, found.abstains.count, found.clean.count) == (1, 2, 6)
    assert found.mean.value == pytest.approx((0.2 + 0.4 + 0.5 + 0.5 + 0.9) / 8)
    assert found.median == pytest.approx((0.2 + 0.4) / 2)
    assert found.largest == 0.9
    lower, upper = known(found.mean.bounds)
    assert lower < found.mean.value < upper


def test_images_without_a_label_are_left_out_and_those_without_a_radius_are_not_certified() -> None:
    found = one(
        [
            *MIXED,
            certificate(8, 3.0, label=None),
            certificate(9, math.nan),
            certificate(10, math.inf),
        ]
    )
    assert (found.images, found.unlabelled, found.not_finite) == (10, 1, 2)
    made = certified_accuracy(found)
    assert (made.at(0).count, made.abstains.count, made.largest) == (5, 4, 0.9)


def test_a_radius_without_a_class_certifies_nothing() -> None:
    found = accuracy([certificate(0, 1.0, of_class=None), certificate(1, 0.0), certificate(2, 1.0)])
    assert (found.at(0).count, found.abstains.count, found.wrong.count) == (1, 2, 0)


def test_what_the_rows_state_of_their_certainty_and_reach() -> None:
    """The largest chance, and the largest reach; one row that states no reach leaves it open."""
    plain = one(MIXED)
    assert (plain.alpha, plain.possible, plain.key.norm) == (0.0, math.inf, "l2")
    stated = [certificate(i, 0.1, stated=stating(0.001 * (i + 1), 0.5 + i)) for i in range(3)]
    found = one(stated)
    assert (found.alpha, found.possible) == (0.003, 2.5)
    assert found.false_at_most == pytest.approx(0.009)
    assert one([*stated, certificate(3, 0.1)]).possible == math.inf
    assert found.asked is None
    assert (
        one([certificate(0, 0.1, stated=stating(0.001, 0.5, 0.4)), certificate(1, 0.0, None)]).asked
        == 0.4
    )


IMAGES = st.lists(
    st.tuples(
        st.sampled_from([0.0, 1e-9, 0.25, 0.5, 0.5, 1.0, 3.0])
        | st.floats(0, 5, allow_subnormal=False),
        st.sampled_from([None, 0, 1]),
        st.sampled_from([0, 1]),
    ),
    min_size=1,
    max_size=25,
)


@given(IMAGES)
def test_the_curve_is_the_certified_accuracy_everywhere(
    images: list[tuple[float, int | None, int]],
) -> None:
    found = accuracy([certificate(i, r, of, label) for i, (r, of, label) in enumerate(images)])
    curve = found.curve()
    assert curve.radii[0] == 0
    assert (np.diff(curve.radii) > 0).all()
    assert (np.diff(curve.counts) <= 0).all()
    for k, r in enumerate(curve.radii):
        share = found.at(float(r))
        assert (share.count, share.value) == (curve.counts[k], curve.values[k])
        assert (known(share.estimate.lower), known(share.estimate.upper)) == pytest.approx(
            (curve.lowers[k], curve.uppers[k])
        )
        if k:
            between = found.at(float((curve.radii[k - 1] + r) / 2))
            # the middle of two neighbours may be one of them
            assert between.count in (
                curve.counts[k],
                curve.counts[k - 1],
            )
    assert found.at(float(curve.radii[-1]) + 1.0).count == 0
    assert found.at(0).count + found.wrong.count + found.abstains.count == len(images)


@given(IMAGES)
def test_the_mean_radius_is_the_area_under_the_curve(
    images: list[tuple[float, int | None, int]],
) -> None:
    found = accuracy([certificate(i, r, of, label) for i, (r, of, label) in enumerate(images)])
    curve = found.curve()
    assert found.mean.value == pytest.approx(
        float(np.diff(curve.radii) @ curve.values[1:]), abs=1e-12
    )
    assert found.largest == curve.radii[-1]


def test_each_result_by_itself_in_the_order_of_the_run() -> None:
    found = certificates_of(pictured())
    assert [(str(one.key), one.key.norm) for one in found] == [
        ("certified_radius:norm=l2 at sigma 0.25", "l2"),
        ("certified_radius:norm=l2 at sigma 0.5", "l2"),
        ("margin_radius:norm=linf at sigma 0.25", "linf"),
    ]
    assert len(certificates_of(pictured(), ["certified_radius"], [0.5])) == 1


def test_runs_that_have_none(golden: Golden) -> None:
    with pytest.raises(RunError) as caught:
        certificates_of(run_of([radius(0, 1.0)]))
    golden(caught.value)
    mixed = run_of([*MIXED, radius(0, 1.0)])
    with pytest.raises(RunError) as caught:
        certificates_of(mixed, ["radius_exact"])
    golden(caught.value)
    with pytest.raises(RunError) as caught:
        certificates_of(run_of([certificate(0, 1.0, label=None)]))
    golden(caught.value)
    with pytest.raises(RunError) as caught:
        certificates_of(mixed, ["nothing"])
    golden(caught.value)


def test_the_document_has_what_was_computed() -> None:
    found = accuracy([*MIXED, certificate(8, 0.1, stated=stating(0.01, 4.0))])
    document = AccuracyAtRadii(found, [0.0, 0.5]).document()
    assert document["quantity"] == CERTIFIED.name
    assert (document["level"], document["norm"], document["images"]) == (AT.level, "l2", 9)
    assert [(one["radius"], one["count"]) for one in document["certified_accuracy"]] == [
        (0.0, 6),
        (0.5, 3),
    ]
    assert document["largest_possible"] is None
    assert document["alpha"] == 0.01
    assert document["false_certificates_at_most"] == pytest.approx(0.09)
