"""What every registered estimator promises, ours and any plugin's that is installed."""

from __future__ import annotations

import math

import pytest
import torch
from pydantic import ValidationError

from robaudit.estimators.base import Estimate, Estimator
from tests.estimators.tools import Counter, build, curved, installed_estimators, linear, work_on

NAMES = sorted(installed_estimators())
pytestmark = pytest.mark.parametrize("name", NAMES)


def test_declares_what_reports_and_gates_need(name: str) -> None:
    cls = installed_estimators()[name]
    assert cls.needs <= {"logits", "gradients", "labels"}
    assert cls.quantity.low < cls.quantity.high
    for text in (cls.summary, cls.prefer, cls.source, cls.interval.text, cls.quantity.name, cls.quantity.unit):
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


def test_estimates_are_sane(name: str) -> None:
    work = work_on(curved())
    estimates = build(name).estimate(work)
    quantity = build(name).quantity
    assert len(estimates) == len(work.x)
    for estimate, predicted in zip(estimates, work.clean.predicted.tolist(), strict=True):
        assert math.isfinite(estimate.value)
        assert quantity.low <= estimate.value <= quantity.high
        assert (estimate.lower is None) == (estimate.upper is None) == (estimate.interval.text == "none")
        if estimate.lower is not None and estimate.upper is not None:
            assert quantity.low <= estimate.lower <= estimate.value <= estimate.upper <= quantity.high
        assert estimate.flips_to is None or (estimate.flips_to != predicted and 0 <= estimate.flips_to < work.classes)
        if estimate.votes is not None:
            assert len(estimate.votes) == work.classes
            assert sum(estimate.votes) == estimate.forwards - 1
            if estimate.interval.text == "clopper-pearson":
                assert estimate.votes[predicted] == round(estimate.value * sum(estimate.votes))


def test_counts_the_passes_it_makes(name: str) -> None:
    network = Counter(curved())
    estimator = build(name)
    work = work_on(network, images=8, gradients=estimator.linearises_clean)  # eight: no batch is padded
    network.images -= 1  # work_on asks once for the number of classes
    estimates = estimator.estimate(work)
    assert network.images == sum(e.forwards for e in estimates)
    if "p_min" not in type(estimator).model_fields:  # rare failures take as many passes as they are rare
        assert {(e.forwards, e.backwards) for e in estimates} == {estimator.passes(work.classes)}


def test_the_same_again(name: str) -> None:
    assert build(name).estimate(work_on(curved())) == build(name).estimate(work_on(curved()))


def test_leaves_the_global_generator_alone(name: str) -> None:
    work = work_on(curved())
    before = torch.get_rng_state()
    build(name).estimate(work)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_batch_size_changes_rounding_only(name: str, batch_size: int) -> None:
    reference = build(name).estimate(work_on(curved()))
    other = build(name).estimate(work_on(curved(), batch_size=batch_size))
    _assert_close(reference, other)


def test_a_chunk_equals_its_images_alone(name: str) -> None:
    together = build(name).estimate(work_on(curved(), images=3))
    alone = [build(name).estimate(work_on(curved(), images=1, first=i))[0] for i in range(3)]
    _assert_close(together, alone)


def test_two_classes(name: str) -> None:
    estimator = build(name)
    assert all(estimator.quantity.low <= e.value <= estimator.quantity.high for e in estimator.estimate(work_on(linear(2))))


def test_a_constant_classifier_never_flips(name: str) -> None:
    """Zero gradients: an infinitely robust image, not a division by zero."""

    def constant(x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)[:, :3] * 0 + torch.tensor([0.0, 30.0, 1.0])

    estimator = build(name)
    for estimate in estimator.estimate(work_on(constant)):
        if estimator.quantity.higher_is_better:
            assert estimate.value == pytest.approx(1.0, abs=1e-9)
        else:  # no failure: a bound, from the draws there were
            assert (estimate.value, estimate.lower) == (estimate.upper, -math.inf)
            assert estimate.value < -1.9
            assert estimate.note
        assert math.isfinite(estimate.std_error or 0.0)


def _assert_close(some: object, others: object) -> None:
    assert isinstance(some, list)
    assert isinstance(others, list)
    for a, b in zip(some, others, strict=True):
        assert isinstance(a, Estimate)
        assert isinstance(b, Estimate)
        assert a.value == pytest.approx(b.value, rel=1e-4, abs=2e-5)
        assert a.flips_to == b.flips_to
        assert (a.forwards, a.backwards, a.interval) == (b.forwards, b.backwards, b.interval)
        if a.lower is not None:
            assert a.lower == pytest.approx(b.lower, rel=1e-3, abs=2e-4)


def test_is_an_estimator(name: str) -> None:
    assert issubclass(installed_estimators()[name], Estimator)
