"""Every interval that is claimed covers: nominal minus two binomial errors at the least, or it is documented to fall short."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from robaudit.gates.decide import decide
from tests.coverage import audits, counts, networks, others
from tests.coverage.__main__ import main
from tests.coverage.study import NOMINAL, PROBABILITIES, Line
from tests.coverage.subjects import subject
from tests.shared import needs_shared
from tests.unit.gates.tools import gate, run_of, votes

PAIRS = [(setting, curve) for setting, (_, _, curves) in networks.SETTINGS.items() for curve in curves]
FEW = 300


def check(lines: Iterable[Line]) -> None:
    for line in lines:
        assert line.holds or (line.exempt and line.covered >= networks.FEW_FLOOR - (NOMINAL - line.floor)), line
        assert 0 < line.width <= 1, line


@pytest.mark.parametrize(("part", "cases"), [(counts.fixed, FEW), (counts.adaptive, FEW), (counts.means, 30), (networks.votes, FEW)])
@pytest.mark.parametrize("p", [0.01, 0.9])
def test_some_cases(part: Callable[[float, int], Iterator[Line]], cases: int, p: float) -> None:
    check(part(p, cases))


@pytest.mark.parametrize("p", [0.01, 0.9])
def test_some_sequences(p: float) -> None:
    check(counts.sequences(p, FEW, horizon=300))


@pytest.mark.parametrize(("setting", "curve"), [("logit_gaussian", networks.GENTLE), ("mmse in pairs", networks.GENTLE)])
def test_some_jackknives(setting: str, curve: networks.Curve) -> None:
    check(networks.jackknife(setting, curve, 0.9, FEW))


@pytest.mark.slow
@pytest.mark.parametrize("part", [counts.fixed, counts.sequences, counts.adaptive, counts.means, networks.votes])
@pytest.mark.parametrize("p", PROBABILITIES)
def test_counts(part: Callable[[float], Iterator[Line]], p: float) -> None:
    check(part(p))


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "curve"), PAIRS, ids=lambda x: x if isinstance(x, str) else x.name)
@pytest.mark.parametrize("p", PROBABILITIES)
def test_jackknives(setting: str, curve: networks.Curve, p: float) -> None:
    check(networks.jackknife(setting, curve, p))


@pytest.mark.slow
def test_no_verdict_rests_on_an_approximation() -> None:
    """A ReLU network whose normal fit is biased: gates at the truth are wrong at most 2.5 % of the time each way."""
    found = list(audits.study(subject("4 layers, ReLU", 100), 20, 10_000))
    for estimator in dict.fromkeys(one.estimator for one in found):
        some = [replace(one, width=0.0) for one in found if one.estimator == estimator and not one.rows]
        if some:
            one = audits.together(some)
            assert max(one.up, one.down) <= 0.025 * one.cases + 3 * (0.025 * one.cases) ** 0.5, one
    for one in found:
        if one.rows and (one.estimator.startswith("mc") or one.estimator.endswith("its votes")):
            assert max(one.up, one.down) <= 0.025 * one.cases + 4 * (0.025 * one.cases) ** 0.5 + 2, one


@pytest.mark.slow
def test_other_intervals_hold() -> None:
    """Rare failures, tolerances, losses and certificates of a small network."""
    found = [one for one in others.study(subject("4 layers, sigmoid", 12), 2, 20_000) if not one.estimator.startswith("qnorm_mc")]
    assert {one.estimator.split(",")[0] for one in found} >= {"noise_tolerance", "certified_radius", "qnorm_path", "smoothed_margin"}
    for one in found:
        assert max(one.up, one.down) <= 0.05 * one.cases + 3 * (0.05 * one.cases) ** 0.5 + 1, one


def test_a_gate_at_the_truth_is_about_what_it_says() -> None:
    """Each gate's truth is the run's own value where the copies are the truth."""
    labels = np.array([0, 0, 1, 1, 2])
    p = np.array([0.5, 1.0, 0.75, 0.875, 0.25])
    rows = votes([int(64 * one) for one in p], 64, labels.tolist())
    known = audits.Truth(p, p, labels, labels)
    for quantity, value in known.values().items():
        (made,) = decide(run_of(rows), [gate(f"{quantity} >= {value:.12g}")])
        assert made.value == pytest.approx(value, abs=1e-12), quantity
    other = audits.Truth(p - 0.125, p - 0.25, labels, labels)
    assert list(known.drops(other).values()) == pytest.approx([0.125, 0.125, 0.25])


@needs_shared
def test_a_shared_model_meets_its_own_images() -> None:
    """The labels belong to the images, and the noise level leaves p between 0 and 1."""
    one = subject("mnist_spectral_mlp", 64)
    known = audits.truth(one, one.model, 200)
    assert len(one.x) == 16
    assert (known.labels == known.predicted).mean() > 0.8
    assert 0.1 < known.p.mean() < 1


def test_the_networks_have_the_moments_they_say() -> None:
    """Mean, variance and mean gradient of the margin, by simulation."""
    for curve in (networks.GENTLE, networks.STRONG):
        network, d, n = curve.network(2.0), curve.pixels, 20_000
        generator = torch.Generator().manual_seed(1)
        x = (0.5 + networks.SIGMA * torch.randn((n, *curve.shape), generator=generator)).requires_grad_()
        g = network(x)[:, 0].double()
        assert float(g.detach().mean()) == pytest.approx(2.0 - curve.mean_shift, abs=4 / n**0.5)
        assert float(g.detach().var()) == pytest.approx(1.0, abs=0.05)
        (gradient,) = torch.autograd.grad(g.sum(), x)
        slope = float(gradient.double().mean()) * networks.SIGMA * d**0.5
        assert slope == pytest.approx(curve.limit("mmse"), abs=0.02)


@pytest.mark.slow
def test_the_command_writes_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--cases", "40", "--seeds", "1", "--images", "20", "--draws", "500", "--saved", str(tmp_path / "saved")]
    main([*arguments, "--parts", "counts", "jackknife", "4 layers, ReLU: audits", "--out", str(tmp_path)])
    text = (tmp_path / "coverage.md").read_text()
    assert all(word in text for word in ("By network", "Clopper-Pearson", "Confidence sequences", "Jackknife", "Means over images"))
    assert "decide .9" in capsys.readouterr().out
