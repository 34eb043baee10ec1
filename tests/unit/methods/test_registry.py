"""Names to estimators: through entry points, with the mistakes that packages can make."""

from __future__ import annotations

from typing import Any

import pytest

from robaudit import plugins
from robaudit.engine import registry
from robaudit.engine.estimator import Estimator
from robaudit.errors import RobauditError, SpecError
from robaudit.methods.average_case.mc import MonteCarlo
from robaudit.methods.average_case.softmax import Softmax
from robaudit.spec.model import EstimatorSpec
from tests.cli.plugin import entries
from tests.golden import Golden

OURS = "robaudit.methods.average_case.mc:MonteCarlo"


def specs(*entries: Any) -> list[EstimatorSpec]:
    return [EstimatorSpec.model_validate(entry) for entry in entries]


def test_ours_are_registered_as_an_outsiders() -> None:
    assert {"mc", "mmse", "mmse_mvs", "softmax", "taylor", "taylor_mvs"} <= set(
        registry.registered()
    )
    assert registry.load("mc") is MonteCarlo


def test_build_keeps_order_labels_and_options() -> None:
    built = registry.build(specs("softmax", {"mc": {"draws": 7, "label": "few"}}, {"mc": None}))
    assert list(built.items()) == [
        ("softmax", Softmax()),
        ("few", MonteCarlo(draws=7)),
        ("mc", MonteCarlo()),
    ]


def test_former_names_of_draws() -> None:
    former = {"mc": {"samples": 7}}
    present = {"mc": {"draws": 7}}
    assert registry.build(specs(former)) == registry.build(specs(present))
    (entry,) = specs({"mc": {"samples": 7}})
    assert registry.with_draws(entry, 5).options == {"draws": 5}


def test_a_former_name_beside_the_present_one(golden: Golden) -> None:
    with pytest.raises(SpecError) as caught:
        registry.build(specs({"mc": {"draws": 7, "samples": 8}}))
    golden(caught.value)


def test_same_label_twice(golden: Golden) -> None:
    with pytest.raises(SpecError) as caught:
        registry.build(specs("mc", {"softmax": {"label": "mc"}}))
    golden(caught.value)


def test_unknown_name(golden: Golden) -> None:
    with pytest.raises(SpecError) as caught:
        registry.build(specs("tailor"))
    golden(caught.value)


def test_two_packages_with_one_name(golden: Golden) -> None:
    with (
        entries.only(plugins.ESTIMATORS, {"mc": OURS, "mc_": "other:Mc"}),
        pytest.raises(RobauditError) as caught,
    ):
        registry.registered()
    golden(caught.value)


def test_the_same_entry_point_seen_twice_is_one() -> None:
    with entries.only(plugins.ESTIMATORS, {"mc": OURS, "mc_": OURS}):
        assert list(registry.registered()) == ["mc"]


def test_copied_instead_of_installed(golden: Golden) -> None:
    with entries.only(plugins.ESTIMATORS, {}), pytest.raises(RobauditError) as caught:
        registry.registered()
    golden(caught.value)


@pytest.mark.parametrize(
    "target",
    [
        "no_such_package:Thing",
        "robaudit.methods.average_case.mc:Nothing",
        "robaudit.runs.rows:Row",
        "robaudit.methods.average_case.mc:math",
    ],
)
def test_broken_plugin(target: str, golden: Golden) -> None:
    with (
        entries.only(plugins.ESTIMATORS, {"thing": target}),
        pytest.raises(RobauditError) as caught,
    ):
        registry.load("thing")
    golden(caught.value)


def test_a_broken_plugin_harms_only_those_who_ask_for_it() -> None:
    with entries.only(plugins.ESTIMATORS, {"mc": OURS, "thing": "no_such_package:Thing"}):
        assert issubclass(registry.load("mc"), Estimator)
