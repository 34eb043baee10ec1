"""Installed estimators by name, through the entry-point group ``robaudit.estimators``, and the tasks of an audit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from robaudit.errors import EstimatorError, ModelError, SpecError, did_you_mean
from robaudit.estimators.base import Estimator, Scope
from robaudit.levels import NO_NOISE, NoiseLevel, whole_noise
from robaudit.names import ResultName
from robaudit.noise.base import AdditiveNoise, NoiseKind
from robaudit.plugins import ESTIMATORS, BrokenContractError, blaming, installed, is_ours, load_class, shown
from robaudit.results import Result
from robaudit.spec.errors import explain
from robaudit.spec.model import AuditSpec, EstimatorSpec

if TYPE_CHECKING:
    from torch import Tensor

    from robaudit.estimators.batch import ImageBatch
    from robaudit.models.logits import LogitModel

GROUP = ESTIMATORS


@dataclass(frozen=True, slots=True)
class Chosen:
    """An estimator with its options and its name in the results."""

    label: str
    name: str
    estimator: Estimator

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its values in the results: one per part, or the label if there is one value."""
        parts = self.estimator.parts
        return tuple(str(ResultName(self.label, part)) for part in parts) or (self.label,)

    def results(self, batch: ImageBatch) -> list[tuple[Result, ...]]:
        """The results of each image of a chunk, in order: one for each name.

        The notes of an image state the number of copies with non-finite logits in :meth:`ImageBatch.noisy`.

        Raises:
            EstimatorError: a plugin raised an exception, or returned something other than one valid Result for each image and name.
        """
        batch.lost.clear()
        parts, quantity = self.estimator.parts, self.estimator.quantity
        with _blaming(self.name, type(self.estimator)):
            found = [one if isinstance(one, tuple) else (one,) for one in self.estimator.estimate(batch)]
            if len(found) != len(batch.x):
                raise BrokenContractError(f"estimate() returned {len(found)} results for {len(batch.x)} image{'s' * (len(batch.x) != 1)}")
            for sample_id, values in zip(batch.ids, found, strict=True):
                if len(values) != len(self.names) or not all(isinstance(one, Result) for one in values):
                    wanted = f"a tuple of {len(parts)} Results" if parts else "a Result"
                    returned = shown(values[0] if len(values) == 1 else values)
                    raise BrokenContractError(f"estimate() returned {returned} for {sample_id}, not {wanted}")
                if not is_ours(type(self.estimator)):
                    for one in values:
                        one.check(quantity, batch.classes)
        for image, lost in (+batch.lost).items():
            remark = f"{lost} noisy copies gave non-finite logits, counted as flips"
            found[image] = tuple(replace(one, note="; ".join(filter(None, [one.note, remark]))) for one in found[image])
        return found


@dataclass(frozen=True, slots=True)
class Task:
    """One estimator at one level of a noise."""

    at: NoiseLevel
    chosen: Chosen

    @property
    def names(self) -> tuple[tuple[NoiseLevel, str], ...]:
        """The results per image, in order: the noise level, and the name of the value."""
        return tuple((self.at, name) for name in self.chosen.names)

    @property
    def text(self) -> str:
        """The task for people: "mc at sigma 0.05"."""
        return self.chosen.label if self.at.levelless else f"{self.chosen.label} at {self.at}"

    def cost(self, classes: int) -> int:
        """The approximate cost of one image, in forward passes."""
        forwards, backwards = self.chosen.estimator.passes(classes)
        return max(1, forwards + 2 * backwards)


def tasks_at(levels: Sequence[NoiseLevel], estimators: Sequence[Chosen]) -> tuple[Task, ...]:
    """Every estimator at each of these noise levels, noise levels outermost."""
    return tuple(Task(at, chosen) for at in levels for chosen in estimators)


def tasks_of(spec: AuditSpec, estimators: Sequence[Chosen]) -> tuple[Task, ...]:
    """Every estimator at every noise level, noise levels outermost: the order of a sample's rows.

    An estimator may name its noises. Level-free tasks come last: first one per noise, then those without noise.

    Raises:
        SpecError: an estimator names an unknown noise, or lacks a noise or a level.
    """
    forms = {noise.label: noise for noise in spec.noise}
    wanted: dict[Scope, list[Task]] = {scope: [] for scope in Scope}
    for chosen in estimators:
        scope, named = chosen.estimator.scope, chosen.estimator.noise
        for label in named:
            if scope is Scope.IMAGE:
                raise SpecError(f"estimators: {chosen.label}", "noise: it has nothing to do with noise", "leave noise out")
            if label not in forms:
                raise SpecError(f"estimators: {chosen.label}", f"noise: the run has no noise {label!r}", did_you_mean(label, forms))
        noises = [noise for label, noise in forms.items() if not named or label in named]
        if scope is not Scope.IMAGE and not noises:
            what = f"the key 'noise' is missing, and {chosen.label} needs it"
            raise SpecError(spec.origin.where or "spec", what, "what is done to the pixels, for example {sigma: [0.05, 8/255]}")
        if scope is Scope.LEVEL and (bare := next((noise for noise in noises if not noise.levels), None)):
            where = spec.origin.place(("noise", spec.noise.index(bare), bare.level_name.value))
            raise SpecError(where, f"is empty, and {chosen.label} needs a level", "list one, or limit it to other noises (noise: [...])")
        places = {
            Scope.LEVEL: [at for noise in noises for at in noise.at],
            Scope.NOISE: [whole_noise(noise.label) for noise in noises],
            Scope.IMAGE: [NO_NOISE],
        }
        wanted[scope] += [Task(at, chosen) for at in places[scope]]
    order = {at: place for place, at in enumerate(spec.levels)}
    return (*sorted(wanted[Scope.LEVEL], key=lambda task: order[task.at]), *wanted[Scope.NOISE], *wanted[Scope.IMAGE])


def refuse_unfit(tasks: Sequence[Task], noises: Mapping[str, NoiseKind]) -> None:
    """Refuse an estimator that cannot work with a noise it is asked for.

    Args:
        tasks: of the run.
        noises: the run's noises by label.

    Raises:
        SpecError: an estimator does not fit its noise.
    """
    for task in tasks:
        if task.at == NO_NOISE:
            continue
        if (why := unfit(task, noises[task.at.noise])) is not None:
            others = ", ".join(label for label in noises if label != task.at.noise)
            limit = f", or limit {task.chosen.label} to other noises (noise: [...], of {others})" if others else ""
            what = f"cannot work with the noise {task.at.noise}: {why.what}"
            raise SpecError(f"estimators: {task.chosen.label}", what, f"{why.instead}{limit}")


class Unfit(NamedTuple):
    """Why an estimator cannot work with a noise, and which one can."""

    what: str
    instead: str


def unfit(task: Task, form: NoiseKind) -> Unfit | None:
    """Why an estimator cannot work with a kind of noise; None if it can."""
    estimator = task.chosen.estimator
    lacks = (
        ("random", not form.random, "it does the same to an image every time", "use mc"),
        ("covariance", not isinstance(form, AdditiveNoise), "it is not additive noise of a known covariance", "use mc"),
        ("bounded", not form.bounded, "it has no limit that a search could keep to", "use uniform or spatial noise"),
    )
    own = estimator.unfit(form)
    if not own and (beyond := estimator.unfit_at(form, task.at.level)):
        own = f"at {task.at.name} {task.at.level:g}, {beyond}"
    found = (Unfit(what, instead) for need, lacking, what, instead in lacks if lacking and need in estimator.needs_noise)
    return next(found, Unfit(own, "change the noise or the options") if own else None)


def check_model(estimators: Sequence[Chosen], model: LogitModel, image: Tensor) -> None:
    """Let every estimator check the model.

    Args:
        estimators: of the run.
        model: pixels to logits.
        image: one image (channels, height, width).

    Raises:
        ModelError: one refuses it.
    """
    image = image.to(model.device, model.dtype)
    for chosen in estimators:
        with _blaming(chosen.name, type(chosen.estimator), (ModelError,)):
            chosen.estimator.check_model(model, image)


def registered() -> dict[str, EntryPoint]:
    """Entry points of the installed estimators by name, in alphabetical order; nothing is imported.

    Raises:
        RobauditError: two packages register the same name, or none is registered at all.
    """
    return installed(GROUP, "estimator")


def load(name: str, where: str = "estimators") -> type[Estimator]:
    """The class behind a name.

    Raises:
        SpecError: unknown name, with a did-you-mean.
        RobauditError: the plugin cannot be imported, is not an Estimator, or defines less than one must.
    """
    return load_class(GROUP, "estimator", name, Estimator, where)  # type: ignore[type-abstract]


@contextmanager
def _blaming(name: str, cls: type[Estimator], but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn an exception in a plugin's code into one that names it: :func:`robaudit.plugins.blaming`."""
    with blaming(f"estimator {name}", cls, EstimatorError, but):
        yield


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
            with _blaming(spec.name, cls, but=(ValidationError,)):
                estimator = cls.model_validate(spec.options)
                one = Chosen(estimator.label or spec.name, spec.name, estimator)
                Task(NO_NOISE, one).cost(10)
                names = one.names
        except ValidationError as error:
            raise explain(error, f"{where}[{i}].{spec.name}") from error
        if one.label in chosen:
            raise SpecError(
                f"{where}[{i}]", f"two estimators are called {one.label!r}", f"give one a name of its own: {{{spec.name}: {{label: ...}}}}"
            )
        taken = {name for other in chosen.values() for name in other.names}
        if same := next((name for name in names if name in taken), None):
            what = f"another estimator has results called {same!r}"
            raise SpecError(f"{where}[{i}]", what, f"give one a name of its own: {{{spec.name}: {{label: ...}}}}")
        chosen[one.label] = one
    return tuple(chosen.values())
