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

OURS = "robaudit.methods.average_case.mc:MonteCarlo"


def specs(*entries: Any) -> list[EstimatorSpec]:
    return [EstimatorSpec.model_validate(entry) for entry in entries]


def test_ours_are_registered_as_an_outsiders() -> None:
    assert {"mc", "mmse", "mmse_mvs", "softmax", "taylor", "taylor_mvs"} <= set(registry.registered())
    assert registry.load("mc") is MonteCarlo


def test_build_keeps_order_labels_and_options() -> None:
    built = registry.build(specs("softmax", {"mc": {"samples": 7, "label": "few"}}, {"mc": None}))
    assert list(built.items()) == [("softmax", Softmax()), ("few", MonteCarlo(samples=7)), ("mc", MonteCarlo())]


def test_same_label_twice() -> None:
    says = r"estimators\[1\]: two estimators are called 'mc'; give one a name of its own: \{softmax: \{label: "
    with pytest.raises(SpecError, match=says):
        registry.build(specs("mc", {"softmax": {"label": "mc"}}))


def test_unknown_name() -> None:
    with pytest.raises(SpecError, match=r"estimators\[0\]: unknown estimator 'tailor'; did you mean 'taylor'\?"):
        registry.build(specs("tailor"))


def test_two_packages_with_one_name() -> None:
    says = r"estimator mc: registered twice, as other:Mc and robaudit\.methods\.average_case\.mc:MonteCarlo; uninstall one"
    with entries.only(plugins.ESTIMATORS, {"mc": OURS, "mc_": "other:Mc"}), pytest.raises(RobauditError, match=says):
        registry.registered()


def test_the_same_entry_point_seen_twice_is_one() -> None:
    with entries.only(plugins.ESTIMATORS, {"mc": OURS, "mc_": OURS}):
        assert list(registry.registered()) == ["mc"]


def test_copied_instead_of_installed() -> None:
    says = r"no entry point in the group robaudit\.estimators; install the package"
    with entries.only(plugins.ESTIMATORS, {}), pytest.raises(RobauditError, match=says):
        registry.registered()


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("no_such_package:Thing", "its plugin no_such_package:Thing does not import: ModuleNotFoundError"),
        ("robaudit.methods.average_case.mc:Nothing", "does not import: AttributeError"),
        ("robaudit.runs.rows:Row", "robaudit.runs.rows:Row is not a subclass of robaudit.Estimator; fix or uninstall the plugin"),
        ("robaudit.methods.average_case.mc:math", "is not a subclass of robaudit.Estimator"),
    ],
)
def test_broken_plugin(target: str, says: str) -> None:
    with entries.only(plugins.ESTIMATORS, {"thing": target}), pytest.raises(RobauditError, match="estimator thing: ") as caught:
        registry.load("thing")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_broken_plugin_harms_only_those_who_ask_for_it() -> None:
    with entries.only(plugins.ESTIMATORS, {"mc": OURS, "thing": "no_such_package:Thing"}):
        assert issubclass(registry.load("mc"), Estimator)
