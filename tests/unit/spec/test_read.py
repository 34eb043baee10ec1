"""From a YAML file and the command line's changes to a spec."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from robaudit.errors import SpecError
from robaudit.spec.model import AuditSpec
from robaudit.spec.read import apply_setting, load_spec
from tests.specs import digits, write


def load(folder: Path, document: object | None = None, **changes: Any) -> AuditSpec:
    return load_spec(write(folder, document or digits()), **changes)


def test_order_of_changes(tmp_path: Path) -> None:
    """Overrides, then --sigma and --estimator, then --set: the last one wins."""
    changes: dict[str, Any] = {
        "overrides": {("run", "seed"): 3, ("dataset", "limit"): 4},
        "sigmas": ["0.3", "1/10"],
        "estimators": ["mmse", "mc"],
        "settings": ["run.seed=5", "mmse.draws=4", "noise.clip=true"],
    }
    spec = load(tmp_path, **changes)
    assert (spec.run.seed, spec.noise[0].levels, spec.noise[0].clip) == (5, (0.3, 0.1), True)
    assert [(one.name, one.options) for one in spec.estimators] == [
        ("mmse", {"draws": 4}),
        ("mc", {"draws": 20}),
    ]


@pytest.mark.parametrize("given", ["samples", "draws"])
@pytest.mark.parametrize("changed", ["samples", "draws"])
def test_a_change_may_use_the_other_name_of_an_option(
    given: str, changed: str, tmp_path: Path
) -> None:
    document = digits(estimators=[{"mc": {given: 20}}])
    spec = load(tmp_path, document, settings=[f"mc.{changed}=50"])
    assert spec.estimators[0].options == {given: 50}


def test_a_byte_order_mark(tmp_path: Path) -> None:
    assert (
        load(tmp_path, "\ufeff" + yaml.safe_dump(digits())).document() == load(tmp_path).document()
    )


def test_limit_of_a_random_subset(tmp_path: Path) -> None:
    sample = load(
        tmp_path,
        digits(dataset={"kind": "digits", "sample": {"size": 9}}),
        overrides={("dataset", "limit"): 3},
    ).dataset.sample
    assert sample is not None
    assert sample.size == 3


def test_set_the_default_estimator(tmp_path: Path) -> None:
    document = digits()
    del document["estimators"]
    assert load(tmp_path, document, settings=["mc.draws=32"]).estimators[0].options == {"draws": 32}


@pytest.mark.parametrize(
    "entry",
    [
        "mc",
        {"mc": None},
        {"mc": {"draws": 1}},
        {"name": "mc"},
        {"name": "mc", "options": {"draws": 1}},
    ],
)
def test_set_an_option_whatever_the_form(entry: object, tmp_path: Path) -> None:
    spec = load(tmp_path, digits(estimators=["taylor", entry]), settings=["mc.draws=9"])
    assert spec.estimators[1].options == {"draws": 9}


@pytest.mark.parametrize("one", ["mc", {"mc": {"draws": 3}}])
def test_one_estimator_needs_no_list(one: Any, tmp_path: Path) -> None:
    document = digits(estimators=one)
    listed = load(tmp_path, digits(estimators=[one])).estimators
    assert (
        load(tmp_path, document).estimators
        == AuditSpec.model_validate(document).estimators
        == listed
    )
    assert load(tmp_path, document, settings=["mc.draws=9"]).estimators[0].options == {"draws": 9}
    assert [
        entry.name for entry in load(tmp_path, document, settings=["estimators=taylor"]).estimators
    ] == ["taylor"]


def test_values_are_yaml() -> None:
    raw: dict[str, Any] = {}
    for setting in (
        "model.mean=[0.5, 1/2]",
        "model.path=a=b.pt",
        "run.seed=3",
        "noise.clip=yes",
        "dataset.class_names=[a, b]",
        "dataset.limit=1e3",  # a number in YAML 1.2, and text in 1.1
    ):
        apply_setting(raw, setting)
    assert raw["model"] == {"mean": [0.5, "1/2"], "path": "a=b.pt"}
    assert (raw["run"], raw["noise"], raw["dataset"]) == (
        {"seed": 3},
        {"clip": True},
        {"class_names": ["a", "b"], "limit": 1000.0},
    )


def test_a_wrong_value_is_blamed_on_its_option(tmp_path: Path) -> None:
    path = write(tmp_path, digits(noise=[{"sigma": [0.1]}]))
    with pytest.raises(SpecError) as caught:
        load_spec(path, settings=["noise.sigma=[0.1, much]"])
    assert caught.value.where == "--set noise.sigma=[0.1, much]"
    # other values still have their line
    with pytest.raises(SpecError) as caught:
        load_spec(write(tmp_path, digits(noise=[{"sigma": ["much"]}])), settings=["run.seed=3"])
    assert caught.value.where.startswith(f"{path}:")


def test_chosen_estimators_keep_their_options(tmp_path: Path) -> None:
    entries = [
        {"mc": {"draws": 5, "label": "few"}},
        {"mc": {"draws": 9, "label": "more"}},
        {"name": "mmse", "options": {"label": "m"}},
    ]
    for names, found in (
        (["more", "softmax", "m"], [("more", {"draws": 9}), ("softmax", {}), ("m", {})]),
        (["mc"], [("few", {"draws": 5})]),
    ):
        spec = load(tmp_path, digits(estimators=entries), estimators=names)
        assert [(one.label, one.options) for one in spec.estimators] == found


@pytest.mark.parametrize("key", ["~", "1", "true", "2026-01-01", "[a, b]", "{a: 1}"])
def test_keys_that_are_not_text(key: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        load(tmp_path, f"? {key}\n: 1\n" + yaml.safe_dump(digits()))


def test_reading_needs_no_torch_and_no_model(tmp_path: Path) -> None:
    """Nor the model's own files: gates are read where the model is gone."""
    write(tmp_path, digits(model={"path": "gone"}, gates=["mean >= 0.9"]))
    program = (
        "import sys\nfrom pathlib import Path\nfrom robaudit.spec.read import "
        "load_spec\nprint(load_spec(Path('spec.yaml')).gates)\n"
    )
    heavy = (
        "print([name for name in ('torch', 'timm', 'transformers', 'torchvision', "
        "'huggingface_hub') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program + heavy],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "('mean >= 0.9',)\n[]\n"
