"""q-norms of losses: closed forms at every q, errors that are what they say, and refusals."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise

import pytest
import torch
from pydantic import ValidationError
from scipy.stats import binom

from robaudit.engine.objective import Objective
from robaudit.methods.intermediate_q.copies import ENOUGH
from robaudit.methods.intermediate_q.qnorm_mc import QNormMc
from robaudit.methods.intermediate_q.qnorm_path import QNormPath
from robaudit.quantities import IntervalKind
from robaudit.results import Result
from tests.unit.engine.goldens import (
    Cliff,
    Curved,
    Flip,
    Golden,
    LaplaceEdge,
    LaplaceLine,
    LaplaceMargin,
    LogNormal,
    Peak,
    Ramp,
    SensorLine,
    SensorPixel,
    SensorSteep,
    Softplus,
    Tilt,
    work_of,
)
from tests.unit.engine.tools import curved, known, values, work_on

GOLDENS = {"tilt": Tilt(), "peak": Peak(), "ramp": Ramp(), "flip": Flip()}
UNBOUNDED = {
    "log-normal": LogNormal(),
    "softplus": Softplus(),
    "curved": Curved(),
    "cliff": Cliff(),
    "Laplace line": LaplaceLine(),
    "Laplace margin": LaplaceMargin(),
    "sensor line": SensorLine(),
    "sensor pixel": SensorPixel(),
}
HARD = {"Laplace edge": LaplaceEdge(), "sensor steep": SensorSteep()}
"""Too hard at q = 1000; see docs/research/intermediate_q.md."""
ALL = {**GOLDENS, **UNBOUNDED}
ORDERS = (1.0, 10.0, 100.0, 1000.0)
TABLE = {  # Z at q = 1, 10, 100, 1000, computed independently
    "tilt": (0.052127, 0.075586, 0.742032, 4.682119),
    "peak": (math.exp(-9.86014), 0.004440, 0.538250, 2.060618),
    "ramp": (0.5, 0.71650379, 0.86042064, 0.89390883),
    "flip": (0.55, 0.83972972, 0.89378325, 0.89937638),
}


@cache
def default_run(name: str) -> list[tuple[Result, ...]]:
    """The default chains, or the default copies, for each of ``ORDERS``."""
    return values(QNormPath(), work_of(ALL[name], 8))


def column(found: list[tuple[Result, ...]], part: int) -> list[Result]:
    return [of_image[part] for of_image in found]


def errors(golden: Golden, found: list[Result], q: float) -> torch.Tensor:
    return torch.tensor(
        [math.log(one.value) for one in found], dtype=torch.float64
    ) - golden.log_norm(q)


def covered(golden: Golden, found: list[Result], q: float) -> int:
    truth = math.exp(golden.log_norm(q))
    return sum(
        one.lower <= truth <= one.upper
        for one in found
        if one.lower is not None and one.upper is not None
    )


@pytest.mark.parametrize("name", GOLDENS)
def test_the_closed_forms_are_those_of_the_table(name: str) -> None:
    for q, z in zip(ORDERS, TABLE[name], strict=True):
        assert math.exp(GOLDENS[name].log_norm(q)) == pytest.approx(
            z, rel=2e-4 if name == "peak" else 1e-5
        )


@pytest.mark.parametrize("name", GOLDENS)
def test_the_loss_is_what_was_meant(name: str) -> None:
    golden = GOLDENS[name]
    work = work_of(golden, 3)
    z = next(work.normals("test", 0, 3))
    found = Objective(work, work.labels, latent=True).losses(torch.arange(3), z)
    delta = work.noisy_pixels(work.x, work.ids, z).flatten(1) - 0.5
    assert torch.allclose(found, golden.log_loss(delta), atol=1e-9)


def test_the_passes_are_those_that_were_said() -> None:
    """With chains at every order; an order without chains takes fewer."""
    forwards, backwards = QNormPath().passes(2)
    (tilt, *_), *_ = default_run("tilt")
    (margin, *_), *_ = default_run("Laplace margin")
    assert 0 < tilt.backwards < margin.backwards < backwards
    assert tilt.forwards - tilt.backwards == margin.forwards - margin.backwards
    assert forwards - backwards == margin.forwards - margin.backwards
    (flip, *_), *_ = default_run("flip")
    assert flip.forwards <= forwards
    assert flip.backwards == 0


def test_ten_classes_take_at_most_6000_passes() -> None:
    forwards, backwards = QNormPath().passes(10)
    assert forwards <= 6000
    assert backwards <= 3000


@pytest.mark.parametrize("name", ["tilt", "curved"])
def test_no_wider_than_plain_copies(name: str) -> None:
    """At q = 1, as many copies as there are forward passes."""
    plain = values(QNormMc(q=(1.0,), draws=QNormPath().passes(2)[0]), work_of(ALL[name], 5))
    for one, other in zip(column(default_run(name), 0)[:5], column(plain, 0), strict=True):
        assert known(one.upper) / known(one.lower) < known(other.upper) / known(other.lower)


@pytest.mark.parametrize("name", [*GOLDENS, "curved", "Laplace margin", "sensor pixel"])
def test_every_order_from_one_run(name: str) -> None:
    golden = ALL[name]
    found = default_run(name)
    for part, q in enumerate(ORDERS):
        error = errors(golden, column(found, part), q)
        standard = [one.numbers["log_std_error"] for one in column(found, part)]
        most = 4 * max(float(error.std()), sum(standard) / 8) / math.sqrt(8)
        assert error.mean().abs() < most + 0.02
        assert covered(golden, column(found, part), q) >= binom.ppf(1e-3, 8, 0.95)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_intervals_cover(name: str) -> None:
    """95 % of the values of 200 repetitions, less what a binomial count of 95 % would fall short of
    once in a thousand."""
    golden = ALL[name]
    found = values(QNormPath(), work_of(golden, 200))
    for part, q in enumerate(ORDERS):
        given = [one for one in column(found, part) if not math.isnan(one.value)]
        assert covered(golden, given, q) >= binom.ppf(1e-3, len(given), 0.95), q


def test_copies_that_a_single_one_outweighs_have_no_upper_end() -> None:
    found = values(QNormMc(draws=500), work_of(GOLDENS["tilt"], 5))
    for of_image in found:
        average = of_image[0]
        far = of_image[3]
        assert far.numbers["ess"] < 10
        assert (far.upper, far.std_error) == (None, None)
        assert far.note == "no upper end: one of 500 copies carries 100 % of the sum"
        assert known(far.lower) <= far.value < math.exp(GOLDENS["tilt"].log_norm(1000.0) - 1)
        assert not average.note
        assert known(average.upper) > average.value


@pytest.mark.parametrize("name", [*GOLDENS, *(name for name in UNBOUNDED if name != "cliff")])
def test_intervals_of_copies_cover_at_every_order(name: str) -> None:
    """Upper ends that the copies cannot know are left out. No copy meets the bad region of
    ``cliff``."""
    golden = ALL[name]
    images = 60
    found = values(QNormMc(), work_of(golden, images))
    most = images * 0.025 + 4 * math.sqrt(images * 0.025 * 0.975)
    for part, q in enumerate(ORDERS):
        truth = math.exp(golden.log_norm(q))
        rows = column(found, part)
        assert sum(one.upper is not None and one.upper < truth for one in rows) <= most
        assert sum(known(one.lower) > truth for one in rows) <= most
    if name in ("tilt", "flip"):
        claimed = [
            sum(one.upper is not None for one in column(found, part)) for part in range(len(ORDERS))
        ]
        assert claimed == {"tilt": [images, 0, 0, 0], "flip": [images] * 4}[name]


def test_values_rise_with_the_order_and_stay_below_the_largest_loss() -> None:
    golden = GOLDENS["peak"]
    for of_image in values(QNormPath(q=(0.5, 3.0, 30.0, 300.0)), work_of(golden, 4)):
        for less, more in pairwise(of_image):
            assert less.std_error is not None
            assert more.std_error is not None
            assert less.value <= more.value
            assert known(less.lower) <= known(more.lower)
            assert known(less.upper) <= known(more.upper)
        assert of_image[-1].value <= golden.highest * 1.01
        assert all(
            (known(one.loss).highest or 0.0) <= golden.highest * (1 + 1e-9) for one in of_image
        )


def test_diagnostics() -> None:
    """Acceptances where there were chains, for some order of the image."""
    by_copies = default_run("tilt")[0][2]
    by_chains = default_run("Laplace margin")[0][3]
    names = {"log_value", "log_std_error", "annealing_gap", "ess"}
    assert set(by_copies.numbers) == names
    assert set(by_chains.numbers) == {*names, "smallest_acceptance"}
    assert by_copies.interval.kind is IntervalKind.LOGNORMAL
    assert by_chains.interval.kind is IntervalKind.CHAINS
    assert 0 <= by_chains.numbers["smallest_acceptance"] <= 1
    assert by_chains.numbers["ess"] < ENOUGH <= by_copies.numbers["ess"]
    for one in (by_copies, by_chains):
        assert one.numbers["log_value"] == pytest.approx(math.log(one.value))
        assert one.note == ""


def test_far_chains_of_noise_that_jumps_are_approximate() -> None:
    """Their gradient is that of an approximation, and no gate rests on them."""
    (near, far), *_ = values(QNormPath(q=(10.0, 1000.0)), work_of(HARD["sensor steep"], 1))
    assert near.interval.covers_bias
    assert (far.interval.kind, far.interval.covers_bias) == (IntervalKind.CHAINS, False)


def test_chains_too_short_to_settle_give_no_value() -> None:
    """Twelve temperatures to a peak far narrower than the noise: the ways up and down differ."""
    found = column(values(QNormPath(q=(1e4,), steps=1), work_of(GOLDENS["peak"], 10)), 0)
    refused = [one for one in found if math.isnan(one.value)]
    assert refused
    assert all(
        one.lower is None and one.upper is None and one.note.startswith("no value")
        for one in refused
    )


def test_chains_that_their_copies_contradict_give_no_value() -> None:
    """Gradients that are zero everywhere lead nowhere, and chains agree on what is near."""

    class Stepped(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = 3 * curved()(x)
            stepped = (4 * logits).detach().round() / 4
            return stepped + 0 * logits

    work = work_on(Stepped(), images=8)
    plain = column(values(QNormMc(q=(1000.0,)), work), 0)
    found = column(values(QNormPath(q=(1000.0,)), work), 0)
    assert any(one.note.endswith("larger norm than the chains") for one in found)
    for one, copies in zip(found, plain, strict=True):
        if not math.isnan(one.value):
            assert known(one.upper) >= known(copies.lower)


def test_a_cliff_that_plain_copies_never_meet() -> None:
    """Their effective sample size is large at q = 10, and they are off by a factor of 1000."""
    golden = UNBOUNDED["cliff"]
    ((plain,),) = values(QNormMc(q=(10.0,)), work_of(golden, 1))
    assert plain.numbers["ess"] > 1000
    assert math.log(plain.value) < golden.log_norm(10.0) - 6
    given = [
        math.log(one.value) for one in column(default_run("cliff"), 1) if not math.isnan(one.value)
    ]
    assert len(given) == 8
    assert all(log_z == pytest.approx(golden.log_norm(10.0), abs=0.3) for log_z in given)


def test_losses_against_the_predicted_class() -> None:
    """Where the label is another class, the loss against the predicted one is smaller."""
    work = work_on(curved())
    label = values(QNormPath(q=(1.0,)), work)
    predicted = values(QNormPath(q=(1.0,), target="predicted"), work)
    for one, other, t, p in zip(
        label, predicted, work.labels.tolist(), work.predicted.tolist(), strict=True
    ):
        assert (known(one[0].loss).target, known(other[0].loss).target) == (t, p)
        assert (one[0].value == other[0].value) == (t == p)


def test_tiny_losses_keep_their_gradient() -> None:
    """A margin of 50: the cross-entropy is e^-50, which float32 cannot tell from 0 after a
    softmax."""
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(24, 2))
    with torch.no_grad():
        network[1].weight.copy_(torch.stack([torch.full((24,), 0.5), torch.full((24,), -0.5)]))  # type: ignore[operator]
        network[1].bias.copy_(torch.tensor([30.0, -10.0]))  # type: ignore[operator]
    for of_image in values(QNormPath(), work_on(network, sigma=0.1)):
        logs = [math.log(one.value) for one in of_image[:3]]
        errors = [one.numbers["log_std_error"] for one in of_image[:3] if one.numbers]
        for q, log_z, error in zip(
            ORDERS[1:], logs[1:], errors[1:], strict=False
        ):  # linear logits, log Z = mean + q variance / 2
            assert log_z - logs[0] == pytest.approx((q - 1) * 0.24 / 2, abs=6 * error + 0.02)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"q": 0}, "greater than or equal to 0.000001"),
        ({"q": [10, 10.0]}, "once"),
        ({"q": []}, "at least 1"),
        ({"q": [1, float("nan")]}, "finite"),
    ],
)
def test_wrong_options(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        QNormPath.model_validate(options)


def test_a_loss_that_is_not_finite_is_not_a_value() -> None:
    class Breaks(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack(
                [
                    x.flatten(1).sum(1),
                    torch.where(x[:, 0, 0, 0] > x[:, 0, 0, 1] + 0.3, torch.nan, 0.0),
                ],
                dim=1,
            )

    for estimator in (QNormPath(temperatures=16), QNormMc(draws=200)):
        assert any(
            math.isnan(of_image[0].value)
            for of_image in values(estimator, work_on(Breaks(), sigma=0.5))
        )
