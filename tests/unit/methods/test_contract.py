"""What every registered estimator promises, ours and any plugin's that is installed."""

from __future__ import annotations

import itertools
import math
from functools import cache

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from robaudit.engine.batch import ImageBatch
from robaudit.engine.estimator import Estimator, Need
from robaudit.errors import ModelError
from robaudit.methods.intermediate_q.qnorm_mc import MOST
from robaudit.methods.intermediate_q.qnorm_path import QNormPath
from robaudit.methods.radius.radius_estimator import SearchedRadius
from robaudit.quantities import CERTIFIED, DIFFICULTY, LOSS, RADIUS, IntervalKind
from robaudit.results import Result
from tests.golden import Golden
from tests.unit.engine.tools import (
    Counter,
    built,
    installed_estimators,
    known,
    linear,
    network_for,
    values,
    work_on,
)

ESTIMATORS: dict[str, type[Estimator]] = installed_estimators()
pytestmark = pytest.mark.parametrize("name", sorted(ESTIMATORS))


def build(name: str) -> Estimator:
    return built(ESTIMATORS[name])


def network(name: str) -> nn.Sequential:
    return network_for(build(name))


def test_declares_what_reports_and_gates_need(name: str) -> None:
    cls = ESTIMATORS[name]
    assert cls.quantity.low < cls.quantity.high
    for text in (
        cls.summary,
        cls.prefer,
        cls.source,
        cls.interval.text,
        cls.quantity.name,
        cls.quantity.unit,
    ):
        assert text.strip() == text
        assert text
    assert cls.__doc__
    assert "Source:" in cls.__doc__


def test_options_are_frozen_and_checked(name: str) -> None:
    estimator = build(name)
    with pytest.raises(ValidationError):
        setattr(estimator, "label", "x")  # noqa: B010 - mypy knows that it is read-only
    with pytest.raises(ValidationError):
        type(estimator).model_validate({"no_such_option": 1})
    assert all(field.description for field in type(estimator).model_fields.values())


@cache
def reference(name: str) -> tuple[ImageBatch, list[tuple[Result, ...]]]:
    """A chunk, and its results."""
    work = work_on(network(name))
    return work, values(build(name), work)


def test_estimates_are_sane(name: str) -> None:
    """Also what is asked of other packages' estimators."""
    estimator = build(name)
    (work, found) = reference(name)
    quantity = estimator.quantity
    assert {len(of_image) for of_image in found} == {len(estimator.parts) or 1}
    for of_image, predicted in zip(found, work.predicted.tolist(), strict=True):
        for estimate in of_image:
            estimate.check(quantity, work.classes)
            assert math.isfinite(estimate.value)
            assert (estimate.lower is None) == (estimate.interval.text == "none")
            open_above = quantity == CERTIFIED or estimate.interval.kind in (
                IntervalKind.LOWER_BOUND,
                IntervalKind.CENSORED,
            )
            unknown_above = estimate.numbers.get("largest_share", 0.0) > MOST
            assert (estimate.upper is None) == (
                estimate.lower is None or open_above or unknown_above
            )
            assert estimate.flips_to is None or 0 <= estimate.flips_to != predicted
            if estimate.votes is not None:
                assert estimate.votes.draws == estimate.forwards - 1
                if estimate.interval.text == "clopper-pearson":
                    counts = estimate.votes.counts
                    assert counts[predicted] == round(estimate.value * estimate.votes.draws)
                    most = max(count for label, count in enumerate(counts) if label != predicted)
                    assert most == (0 if estimate.flips_to is None else counts[estimate.flips_to])


def test_counts_the_passes_it_makes(name: str) -> None:
    counter = Counter(network(name))
    estimator = build(name)
    work = work_on(counter, images=8)  # eight: no batch is padded
    counter.images -= 1  # work_on asks once for the number of classes
    found = values(estimator, work)
    estimates = [of_image[0] for of_image in found]
    # the gradients of a linear network are those of all its images; the operations of a network are
    # looked at once
    shared = {
        "radius_exact": work.classes,
        "margin_radius": 1,
        "smoothed_margin": 1,
        "moments": 4,
    }.get(name, 0)
    counted = counter.images - shared
    stated = sum(e.forwards for e in estimates)
    # their batches shrink as images end, or do not need chains
    padding = isinstance(estimator, (SearchedRadius, QNormPath))
    assert counted >= stated if padding else counted == stated, (
        "the values of an image share one computation"
    )
    assert all(
        (one.forwards, one.backwards) == (of_image[0].forwards, of_image[0].backwards)
        for of_image in found
        for one in of_image
    )
    if name == "radius_random":  # as many as directions turn out to need
        assert all(e.forwards > 40 for e in estimates)
    # a search ends early where it is sure, and chains run only where copies do not suffice
    elif isinstance(estimator, (SearchedRadius, QNormPath)):
        most = estimator.passes(work.classes)
        assert all(e.forwards <= most[0] and e.backwards <= most[1] for e in estimates)
    elif (
        "p_min" not in type(estimator).model_fields and Need.NOISE not in estimator.needs
    ):  # those go on until they know enough
        assert {(e.forwards, e.backwards) for e in estimates} == {estimator.passes(work.classes)}


def test_the_same_again_without_the_global_generator(name: str) -> None:
    found = reference(name)[1]
    work = work_on(network(name))
    before = torch.get_rng_state()
    assert values(build(name), work) == found
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    "batch_size",
    [pytest.param(1, marks=pytest.mark.slow), 7, pytest.param(64, marks=pytest.mark.slow)],
)
def test_batch_size_changes_rounding_only(name: str, batch_size: int) -> None:
    other = values(build(name), work_on(network(name), batch_size=batch_size))
    for a, b in zip(itertools.chain(*reference(name)[1]), itertools.chain(*other), strict=True):
        assert a.value == pytest.approx(b.value, rel=1e-4, abs=2e-5)
        assert a.flips_to == b.flips_to
        assert (a.forwards, a.backwards, a.interval) == (b.forwards, b.backwards, b.interval)
        if a.lower is not None:
            assert a.lower == pytest.approx(b.lower, rel=1e-3, abs=2e-4)


@pytest.mark.bits
@pytest.mark.parametrize("rounds", [(1, 8, 16, 40), (3, 4, 39, 40)])
def test_copies_in_rounds_are_those_at_once(name: str, rounds: tuple[int, ...]) -> None:
    estimator = build(name).having(draws=40)
    if estimator is None or estimator.most_draws is None:
        return
    assert estimator.most_draws == 40
    work = work_on(network(name))
    results = None
    for draws in rounds:
        # The prediction alone is known, as in a later session.
        known_classes = ImageBatch(
            work.ids, work.x, work.labels, work.at, work.engine, work.predicted
        )
        results = estimator.further(known_classes, results, draws)
        assert results == estimator.further(work, None, draws)
        assert [result.votes.draws for result in results if result.votes] == [draws] * 5
    assert results == estimator.estimate(work)


def test_two_classes(name: str) -> None:
    estimator = build(name)
    found = values(estimator, work_on(linear(2)))
    assert all(
        estimator.quantity.low <= e.value <= estimator.quantity.high
        for of_image in found
        for e in of_image
    )


class Masked(nn.Module):
    """A network whose last class is masked by minus infinity, or left out."""

    mask: torch.Tensor

    def __init__(self, network: nn.Module, *, left_out: bool) -> None:
        super().__init__()
        self.network = network
        self.left_out = left_out
        self.register_buffer("mask", torch.tensor([0.0, 0.0, 0.0, 0.0, -math.inf]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.network(x)
        return logits[:, :4] if self.left_out else logits + self.mask


def test_a_masked_class_never_wins(name: str, golden: Golden) -> None:
    estimator = build(name)
    five = network_for(estimator, 5)
    masked = work_on(Masked(five, left_out=False))
    if name in ("margin_radius", "smoothed_margin", "moments"):
        with pytest.raises(ModelError) as caught:
            values(estimator, masked)
        golden(caught.value)
        if name == "moments":
            return
        estimator = known(estimator.having(lipschitz={"l2": 10.0, "source": "a test"}))
    found = values(estimator, masked)
    without = values(estimator, work_on(Masked(five, left_out=True)))
    for a, b in zip(itertools.chain(*found), itertools.chain(*without), strict=True):
        # `qnorm_path` also takes copies for the masked class, so its value is another estimate
        most = 0.05 if name == "qnorm_path" else 1e-6
        assert a.value == pytest.approx(b.value, rel=most)
        assert a.flips_to == b.flips_to
        assert (a.lower is None) == (b.lower is None)


@pytest.mark.bits
def test_a_constant_classifier_never_flips(name: str) -> None:
    """Zero gradients: an infinitely robust image, not a division by zero."""

    def constant(x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)[:, :3] * 0 + torch.tensor([0.0, 30.0, 1.0])

    estimator = build(name)
    for estimate in (one for of_image in values(estimator, work_on(constant)) for one in of_image):
        if (
            estimator.quantity.name == LOSS.name
        ):  # no noise changes it: each norm is the loss itself
            assert min(abs(estimate.value - loss) for loss in (0.0, 30.0)) < 1e-6
        elif estimator.quantity.name == RADIUS.name:
            assert estimate.interval.kind is IntervalKind.CENSORED
        elif estimator.quantity.name == DIFFICULTY.name:
            assert estimate.value == pytest.approx(29.0, abs=0.5)
        elif estimator.quantity.name == CERTIFIED.name:
            assert estimate.value > 0.38, "what the draws allow at most, or without end"
        elif estimator.quantity.higher_is_better:
            assert estimate.value == pytest.approx(1.0, abs=1e-9)
        else:  # no failure: a bound, from the draws there were
            assert (estimate.value, estimate.lower) == (estimate.upper, None)
            assert estimate.value < -1.9
            assert estimate.note
        assert math.isfinite(estimate.std_error or 0.0)
