"""Real trained networks on their real test images: what an audit must say about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import binomtest, norm, spearmanr
from torch import nn

from robaudit import Row, Run, audit
from tests.shared import SHARED, card, document, needs_shared
from tests.specs import located
from tests.unit.engine.tools import known

pytestmark = needs_shared


def run_of(tmp_path: Path, values: dict[str, Any], *, name: str = "run", **options: Any) -> Run:
    spec = located(values, tmp_path, name)
    return audit(spec, out=tmp_path / name, **options)


def by_estimator(run: Run, label: str, sigma: float | None = None) -> list[Row]:
    return [row for row in run.rows if row.estimator == label and sigma in (None, row.at.level)]


@pytest.mark.parametrize(
    "model",
    [
        "cifar10_resnet20",
        "fashion_shallow_cnn",
        "cifar10_cnn_a_adv",
        "mnist_spectral_mlp",
        "fashion_logistic",
    ],
)
def test_audits_real_models(tmp_path: Path, model: str) -> None:
    estimators = [{"mc": {"draws": 60}}, "taylor", {"mmse": {"draws": 4}}, "softmax"]
    run = run_of(tmp_path, document(model, limit=6, estimators=estimators))
    assert len(run.rows) == 6 * 4
    assert run.info.warnings == []
    accuracy = known(run.info.clean_accuracy)
    assert (
        accuracy.lower <= card(model)["accuracy"] <= accuracy.upper
        or accuracy.value >= card(model)["accuracy"]
    )
    assert {row.interval.text for row in run.rows} == {
        "clopper-pearson",
        "none",
        "jackknife:approximate",
    }


@pytest.mark.parametrize(
    "sigma", [*(pytest.param(level, marks=pytest.mark.slow) for level in (0.05, 1.0)), 0.25]
)
def test_a_linear_model_is_exact(tmp_path: Path, sigma: float) -> None:
    """taylor and mmse lie within mc's 99.9 % interval on at least 99 % of the images."""
    samples = 1000
    values = document(
        "fashion_logistic",
        limit=100,
        estimators=[{"mc": {"draws": samples}}, "taylor", {"mmse": {"draws": 4}}],
    )
    run = run_of(tmp_path, values | {"noise": {"sigma": [sigma]}})
    intervals = [
        binomtest(round(row.value * samples), samples).proportion_ci(0.999)
        for row in by_estimator(run, "mc")
    ]
    for label in ("taylor", "mmse"):
        inside = [
            i.low <= row.value <= i.high
            for i, row in zip(intervals, by_estimator(run, label), strict=True)
        ]
        assert np.mean(inside) >= 0.99


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("fp64", 1e-9)])
def test_two_class_slices_equal_the_closed_form(
    tmp_path: Path, precision: str, tolerance: float
) -> None:
    """Pairs of rows of W make binary linear models: p = Phi(|c| / (sigma ||u||)), u = (w_a - w_b) /
    std in pixel units."""
    state = load_file(SHARED / "models" / "fashion_logistic" / "model.safetensors")
    about = card("fashion_logistic")
    sigma = 0.25
    images = np.load(SHARED / "data" / "fashion_mnist_test.npz")["images"][:20]
    x = (torch.from_numpy(images).double() / 255 - about["mean"][0]) / about["std"][0]
    for a, b in ((0, 6), (2, 4), (3, 9)):
        layer = nn.Linear(784, 2)
        with torch.no_grad():
            layer.weight.copy_(state["linear.weight"][[a, b]])
            layer.bias.copy_(state["linear.bias"][[a, b]])
        values = document(
            "fashion_logistic",
            limit=20,
            estimators=["taylor", {"mmse": {"draws": 2}}],
            run={"precision": precision},
        )
        values["noise"] = {"sigma": [sigma]}
        values["dataset"] |= {"labels_key": None}
        run = run_of(
            tmp_path, values, name=f"pair-{a}-{b}", model=nn.Sequential(nn.Flatten(), layer)
        )
        weight = state["linear.weight"].double()
        bias = state["linear.bias"].double()
        u = (weight[a] - weight[b]) / about["std"][0]
        margin = (x.flatten(1) @ (weight[a] - weight[b]) + bias[a] - bias[b]).abs()
        expected = norm.cdf((margin / (sigma * u.norm())).numpy())
        for label in ("taylor", "mmse"):
            assert [row.value for row in by_estimator(run, label)] == pytest.approx(
                list(expected), abs=tolerance
            )


@pytest.mark.slow
def test_resnet20_against_a_converged_run_of_another_seed(tmp_path: Path) -> None:
    """First 48 images, sigma .05: mc (2,000) has RMSE <= .0095 and mmse (10) ranks like it (>=
    .97)."""
    values = document("cifar10_resnet20", file="model.pt2", limit=48)
    reference = run_of(
        tmp_path,
        values | {"estimators": [{"mc": {"draws": 8192}}], "run": {"seed": 1}},
        name="reference",
    )
    run = run_of(
        tmp_path, values | {"estimators": [{"mc": {"draws": 2000}}, {"mmse": {"draws": 10}}]}
    )
    truth = np.array([row.value for row in reference.rows])
    mc, mmse = (
        np.array([row.value for row in by_estimator(run, label)]) for label in ("mc", "mmse")
    )
    assert np.sqrt(np.mean((mc - truth) ** 2)) <= 0.0095
    assert spearmanr(mmse, truth).statistic >= 0.97
