"""Installed estimators by name, through the entry-point group ``robaudit.estimators``, and the tasks of an audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from pydantic import ValidationError

from robaudit.errors import RobauditError, SpecError, did_you_mean
from robaudit.estimators.base import Estimate, Estimator
from robaudit.estimators.contract import blaming, check_class, check_passes, checked_estimates
from robaudit.spec.errors import explain
from robaudit.spec.model import EstimatorSpec

if TYPE_CHECKING:
    from robaudit.estimators.work import Work

GROUP = "robaudit.estimators"


@dataclass(frozen=True, slots=True)
class Chosen:
    """An estimator with its options and its name in the results."""

    label: str
    name: str
    estimator: Estimator

    def estimates(self, work: Work) -> list[Estimate]:
        """What the estimator says of each image of a chunk, in order: see :func:`robaudit.estimators.contract.checked_estimates`."""
        return checked_estimates(self.name, self.estimator, work)


@dataclass(frozen=True, slots=True)
class Task:
    """One estimator at one noise level."""

    sigma: float
    chosen: Chosen

    def cost(self, classes: int) -> int:
        """About what one image costs, in forward passes."""
        forwards, backwards = self.chosen.estimator.passes(classes)
        return max(1, forwards + 2 * backwards)


def tasks_of(sigmas: Sequence[float], estimators: Sequence[Chosen]) -> tuple[Task, ...]:
    """Every estimator at every noise level, noise levels outermost: the order of a sample's rows."""
    return tuple(Task(sigma, chosen) for sigma in sigmas for chosen in estimators)


def installed() -> dict[str, EntryPoint]:
    """Entry points by name, in alphabetical order; nothing is imported.

    Raises:
        RobauditError: two packages register the same name, or none is registered at all.
    """
    points: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda p: (p.name, p.value)):
        other = points.setdefault(point.name, point)
        if other.value != point.value:
            raise RobauditError(
                f"estimator {point.name}", f"registered twice, as {other.value} and {point.value}", "uninstall one of the packages"
            )
    if not points:
        raise RobauditError(
            "estimators", f"no entry point in the group {GROUP}", "install the package (pip install .) instead of copying it"
        )
    return points


def load(name: str, where: str = "estimators") -> type[Estimator]:
    """The class behind a name.

    Raises:
        SpecError: unknown name, with a did-you-mean.
        RobauditError: the plugin cannot be imported or is not an Estimator.
    """
    points = installed()
    if name not in points:
        raise SpecError(where, f"unknown estimator {name!r}", did_you_mean(name, points))
    try:
        cls = points[name].load()
    except Exception as error:
        raise RobauditError(
            f"estimator {name}", f"its plugin {points[name].value} does not import: {error!r}", "fix or uninstall it"
        ) from error
    if not (isinstance(cls, type) and issubclass(cls, Estimator)):
        raise RobauditError(
            f"estimator {name}", f"{points[name].value} is not a subclass of robaudit.Estimator", "fix or uninstall the plugin"
        )
    check_class(name, cls)
    return cls


def build(specs: Sequence[EstimatorSpec], where: str = "estimators") -> tuple[Chosen, ...]:
    """Estimators with their options checked.

    Raises:
        SpecError: unknown name or option, bad value, or two with the same label.
        EstimatorError: a plugin does not keep its contract.
    """
    chosen: dict[str, Chosen] = {}
    for i, spec in enumerate(specs):
        cls = load(spec.name, f"{where}[{i}]")
        try:
            with blaming(spec.name, cls, but=(ValidationError,)):
                estimator = cls.model_validate(spec.options)
        except ValidationError as error:
            raise explain(error, cls, f"{where}[{i}].{spec.name}") from error
        label = estimator.label or spec.name
        if label in chosen:
            raise SpecError(
                f"{where}[{i}]", f"two estimators are called {label!r}", f"give one a name of its own: {{{spec.name}: {{label: ...}}}}"
            )
        check_passes(spec.name, estimator)
        chosen[label] = Chosen(label, spec.name, estimator)
    return tuple(chosen.values())
