"""Several noises in a spec: how they are written, chosen on the command line, and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from robaudit.errors import SpecError
from robaudit.levels import LevelName, NoiseLevel
from robaudit.noise.installed import build
from robaudit.spec.model import AuditSpec
from robaudit.spec.read import load_spec
from tests.golden import Golden
from tests.levels import sigma
from tests.specs import digits, write

SEVERAL = [
    {"sigma": [0.1, "1/5"]},
    {"name": ["a", "b"], "sigma": 0.3, "clip": True},
    {"kind": "weather", "name": "rain", "severity": [1, 3], "drops": "small"},
]


@pytest.fixture(autouse=True)
def _any_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read specs with a made-up kind; that its name is looked up is tested with the command line,
    and below with ``build``."""
    monkeypatch.setattr("robaudit.spec.read.refuse_unknown", lambda *_: None)


def load(folder: Path, noise: object, **changes: Any) -> AuditSpec:
    return load_spec(write(folder, digits(noise=noise)), **changes)


def test_a_list_of_noises(tmp_path: Path) -> None:
    spec = load(tmp_path, SEVERAL)
    assert [(one.label, one.kind, one.clip, one.options) for one in spec.noise] == [
        ("gaussian", "gaussian", False, {}),
        ("a", "gaussian", True, {}),
        ("b", "gaussian", True, {}),
        ("rain", "weather", False, {"drops": "small"}),
    ]
    a = NoiseLevel("a", 0.3, LevelName.SIGMA)
    b = NoiseLevel("b", 0.3, LevelName.SIGMA)
    rain = [NoiseLevel("rain", level, LevelName.SEVERITY) for level in (1.0, 3.0)]
    assert spec.levels == (sigma(0.1), sigma(0.2), a, b, *rain)
    assert [at.text for at in spec.levels] == [
        "sigma 0.1",
        "sigma 0.2",
        "a sigma 0.3",
        "b sigma 0.3",
        "rain severity 1",
        "rain severity 3",
    ]
    assert AuditSpec.model_validate(spec.document()).document() == spec.document()


@pytest.mark.parametrize(
    ("changes", "levels"),
    [
        ({"noises": ["gaussian"]}, ["sigma 0.1", "sigma 0.2"]),
        ({"noises": ["rain", "b"]}, ["rain severity 1", "rain severity 3", "b sigma 0.3"]),
        ({"noises": ["rain"], "levels": ["5"]}, ["rain severity 5"]),
        ({"noises": ["a", "gaussian"], "levels": ["1/2"]}, ["a sigma 0.5", "sigma 0.5"]),
        (
            {"sigmas": ["0.4"]},
            ["sigma 0.4", "a sigma 0.4", "b sigma 0.4", "rain severity 1", "rain severity 3"],
        ),
        ({"noises": ["a"], "sigmas": ["0.4", "0.5"]}, ["a sigma 0.4", "a sigma 0.5"]),
    ],
)
def test_noises_and_levels_are_chosen(
    changes: dict[str, Any], levels: list[str], tmp_path: Path
) -> None:
    assert [at.text for at in load(tmp_path, SEVERAL, **changes).levels] == levels


def test_a_single_noise_can_be_chosen_and_set(tmp_path: Path) -> None:
    spec = load(tmp_path, SEVERAL, noises=["b"], settings=["noise.clip=false"])
    assert [(one.label, one.clip) for one in spec.noise] == [("b", False)]


def test_sigma_is_enough(tmp_path: Path) -> None:
    document = digits()
    del document["noise"]
    assert load_spec(write(tmp_path, document), sigmas=["0.4"]).levels == (sigma(0.4),)
    assert load(tmp_path, [{"clip": True}], sigmas=["0.4"]).levels == (sigma(0.4),)


@pytest.mark.parametrize(
    ("noise", "changes"),
    [
        (SEVERAL, {"noises": ["rian"]}),
        (None, {"noises": ["rain"]}),
        (SEVERAL, {"levels": ["3"]}),
        (SEVERAL, {"noises": ["rain"], "sigmas": ["3"]}),
        (SEVERAL, {"levels": ["3"], "sigmas": ["3"]}),
        ([None], {"sigmas": ["3"]}),
        (["x"], {"sigmas": ["3"]}),
        (SEVERAL, {"noises": ["a", "a"]}),
    ],
)
def test_choices_that_are_refused(
    noise: object, changes: dict[str, Any], tmp_path: Path, golden: Golden
) -> None:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, noise, **changes)
    golden(caught.value)


@pytest.mark.parametrize(
    "noise",
    [
        {"kind": "gausian", "sigma": 1},
        {"sigma": 1, "clpi": True},
        [{"sigma": 1}, {"name": "x", "sigma": 1, "clpi": 1}],
    ],
)
def test_a_spec_without_a_file_is_refused_by_its_keys(
    noise: object, tmp_path: Path, golden: Golden
) -> None:
    spec = AuditSpec.model_validate(digits(noise=noise))
    with pytest.raises(SpecError) as caught:
        build(spec.noise, spec.base_dir, spec.origin)
    golden(caught.value)


LIMITED = [
    "logit_gaussian",
    {"taylor": {"noise": "gaussian"}},
    {"mc": {"noise": ["gaussian", "rain"], "draws": 10}},
]


def test_estimators_are_kept_to_the_chosen_noises(tmp_path: Path, golden: Golden) -> None:
    path = write(tmp_path, digits(noise=SEVERAL, estimators=LIMITED))
    spec = load_spec(path, noises=["rain"])
    assert [(one.name, one.noise, one.options) for one in spec.estimators] == [
        ("logit_gaussian", (), {}),
        ("mc", ("rain",), {"draws": 10}),
    ]
    spec = load_spec(path, noises=["rain"], estimators=["mc"])
    assert [(one.name, one.noise) for one in spec.estimators] == [("mc", ("rain",))]
    with pytest.raises(SpecError) as caught:
        load_spec(path, noises=["rain"], estimators=["taylor"])
    golden(caught.value)
    unknown = load_spec(
        write(tmp_path, digits(noise=SEVERAL, estimators=[{"mc": {"noise": ["snow"]}}])),
        noises=["rain"],
    )
    assert unknown.estimators[0].noise == ("snow",), (
        "a wrong label is left for the message about it"
    )
