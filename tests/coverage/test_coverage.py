"""Every interval that is claimed covers: nominal minus two binomial errors at the least, or it is documented to fall short."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.coverage import audits, counts, networks
from tests.coverage.__main__ import main
from tests.coverage.report import markdown
from tests.coverage.study import NOMINAL, PROBABILITIES, Line

PAIRS = [(setting, curve) for setting, (_, _, curves) in networks.SETTINGS.items() for curve in curves]
FEW = 300


def check(lines: Iterable[Line]) -> None:
    for line in lines:
        assert line.holds or (line.exempt and line.covered >= networks.FEW_FLOOR - (NOMINAL - line.floor)), line
        assert 0 < line.width <= 1, line


@pytest.mark.parametrize("part", [counts.fixed, counts.adaptive, counts.means, networks.votes])
@pytest.mark.parametrize("p", [0.01, 0.9])
def test_some_cases(part: Callable[[float, int], Iterator[Line]], p: float) -> None:
    check(part(p, FEW))


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
    subject = next(iter(audits.made_here(100)))
    found = list(audits.study(subject, 20, 10_000))
    gates = [one for one in found if not one.about.startswith("to ")]
    for estimator in audits.ESTIMATORS:
        some = audits.together([replace(one, width=0.0) for one in gates if one.estimator == estimator])
        assert max(some.up, some.down) <= 0.025 * some.cases + 3 * (0.025 * some.cases) ** 0.5, some
    for one in found:
        if one.estimator in ("mc, 64 copies", "logit_gaussian: its votes") and one.about.startswith("to "):
            assert max(one.up, one.down) <= 0.025 * one.cases + 4 * (0.025 * one.cases) ** 0.5 + 2, one


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


def test_the_report_names_what_falls_short(tmp_path: Path) -> None:
    good = Line("clopper-pearson", "mc, 10 draws", 0.5, 2000, 0.96, 0.1, 10)
    text = markdown([good, Line("clopper-pearson", "mc, 10 draws", 0.9, 2000, 0.93, 0.1, 10, "Because.")], 1.0)
    assert "| 10 | - | - | - | 0.960<br>0.100 | **0.930**<br>0.100 | - | - |" in text
    assert "p = 0.9: 0.9300 (at least 0.9403 required)\n\nBecause.\n" in text
    assert "None." in markdown([good], 1.0)


@pytest.mark.slow
def test_the_command_writes_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--cases", "40", "--seeds", "1", "--images", "20", "--draws", "500", "--networks", "1", "--out", str(tmp_path)])
    text = (tmp_path / "coverage.md").read_text()
    assert all(word in text for word in ("By network", "Clopper-Pearson", "Confidence sequences", "Jackknife", "Means over images"))
    assert "decide .9" in capsys.readouterr().out
