"""Installed estimators by name, from the entry-point group ``robaudit.estimators``, and the tasks
of an audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from robaudit.engine.estimator import Estimator, Need
from robaudit.errors import SpecError, did_you_mean
from robaudit.levels import NoiseLevel
from robaudit.names import ResultName
from robaudit.noise.noise import AdditiveNoise, Noise
from robaudit.plugins import (
    ESTIMATORS,
    BrokenContractError,
    blaming,
    installed,
    is_ours,
    load_class,
    reference,
    shown,
)
from robaudit.quantities import Quantity
from robaudit.results import Result
from robaudit.spec.model import AuditSpec, EstimatorSpec, NoiseSpec
from robaudit.spec.validation_errors import explain

# Specs are checked, and estimators listed, without the seconds that torch takes to import.
if TYPE_CHECKING:
    from torch import Tensor

    from robaudit.engine.batch import ImageBatch
    from robaudit.models.logits import LogitModel


@dataclass(frozen=True, slots=True)
class Task:
    """An estimator at a level of a noise, for a noise as a whole, or without noise.

    Attributes:
        estimator: the estimator, with its options.
        label: name of the estimator in the results.
        at: the noise and its level.
    """

    estimator: Estimator
    label: str
    at: NoiseLevel = field(default_factory=NoiseLevel)

    @property
    def values(self) -> tuple[str, ...]:
        """The names of the values in the results: a name per part, or the label if there is a
        single value."""
        names = tuple(str(ResultName(self.label, part)) for part in self.estimator.parts)
        return names or (self.label,)

    @property
    def names(self) -> tuple[tuple[NoiseLevel, str], ...]:
        """The results per image, in order: noise level and name of each value."""
        return tuple((self.at, name) for name in self.values)

    @property
    def text(self) -> str:
        """The task for people: "mc at sigma 0.05"."""
        return self.label if self.at.level is None else f"{self.label} at {self.at}"

    def cost(self, classes: int) -> int:
        """The approximate cost of one image, in forward passes."""
        forwards, backwards = self.estimator.passes(classes)
        # A backward pass takes about as long as two forward passes.
        return max(1, forwards + 2 * backwards)

    def results(
        self,
        batch: ImageBatch,
        *,
        draws: int | None = None,
        earlier: Sequence[Result] | None = None,
    ) -> list[tuple[Result, ...]]:
        """The results of each image of a chunk, in order: a result per value.

        The notes state the number of copies with non-finite logits, as counted by
        :meth:`ImageBatch.noisy`.

        Args:
            batch: the chunk.
            draws: copies of each image in all, of an estimator that takes them in rounds; None:
                all.
            earlier: the results after fewer copies.

        Raises:
            PluginError: a plugin raised an exception, or did not return a valid Result for each
                image and value.
        """
        batch.lost.clear()  # the batch may have served another task
        with blaming(f"estimator {self.label}", type(self.estimator)):
            if draws is None:
                computed = self.estimator.estimate(batch)
            else:
                computed = self.estimator.further(batch, earlier, draws)
            results = [values if isinstance(values, tuple) else (values,) for values in computed]
            self._check(results, batch)
        for image, lost in batch.lost.items():
            if lost > 0:
                remark = f"{lost} noisy copies gave non-finite logits, counted as flips"
                results[image] = tuple(_with_remark(value, remark) for value in results[image])
        return results

    def _check(self, results: Sequence[tuple[Result, ...]], batch: ImageBatch) -> None:
        """Check that the estimator returned a valid Result for each image and value.

        Raises:
            BrokenContractError: it did not.
        """
        parts = self.estimator.parts
        if len(results) != len(batch.x):
            raise BrokenContractError(
                f"estimate() returned {len(results)} results for {len(batch.x)} "
                f"image{'s' * (len(batch.x) != 1)}"
            )
        values_of_image = len(self.values)
        for sample_id, values in zip(batch.ids, results, strict=True):
            are_results = all(isinstance(value, Result) for value in values)
            if len(values) != values_of_image or not are_results:
                wanted = f"a tuple of {len(parts)} Results" if parts else "a Result"
                returned = shown(values[0] if len(values) == 1 else values)
                raise BrokenContractError(
                    f"estimate() returned {returned} for {sample_id}, not {wanted}"
                )
            # The values of our own estimators are checked by tests instead, which saves time.
            if not is_ours(type(self.estimator)):
                for value in values:
                    value.check(self.estimator.quantity, batch.classes)


def _with_remark(result: Result, remark: str) -> Result:
    """The result with a remark at the end of its note."""
    note = f"{result.note}; {remark}" if result.note else remark
    return replace(result, note=note)


def with_draws(entry: EstimatorSpec, draws: int) -> EstimatorSpec:
    """The entry of a spec with another number of draws."""
    # The option may be there under its former name, which beside the present one is refused.
    renamed = load(entry.name).renamed
    options = {
        key: value for key, value in entry.options.items() if renamed.get(key, key) != "draws"
    }
    return entry.model_copy(update={"options": {**options, "draws": draws}})


def tasks_of(spec: AuditSpec) -> tuple[Task, ...]:
    """Every estimator at every noise level, noise levels outermost: the order of a sample's rows.

    An estimator may name its noises. Level-free tasks come last: first a task per noise, then tasks
    without noise.

    Raises:
        SpecError: an estimator is unknown or has wrong options, names an unknown noise, or lacks a
            noise or a level.
    """
    at_levels = list[Task]()
    under_noises = list[Task]()
    without_noise = list[Task]()
    estimators = build(spec.estimators)
    for entry, (label, estimator) in zip(spec.estimators, estimators.items(), strict=True):
        needs_level = Need.LEVEL in estimator.needs
        if not needs_level and Need.NOISE not in estimator.needs:
            if entry.noise:
                raise SpecError(
                    f"estimators: {label}", "noise: it uses no noise", "leave noise out"
                )
            without_noise.append(Task(estimator, label))
            continue
        noises = _noises_of(spec, entry, label)
        if not needs_level:
            under_noises += [Task(estimator, label, NoiseLevel(noise.label)) for noise in noises]
            continue
        for noise in noises:
            if not noise.levels:
                place = ("noise", spec.noise.index(noise), noise.level_name.value)
                raise SpecError(
                    spec.origin.place(place),
                    f"is empty, and {label} needs a level",
                    "list one, or limit it to other noises (noise: [...])",
                )
        for noise in noises:
            at_levels += [Task(estimator, label, at) for at in noise.at_levels]
    # A stable sort keeps the estimators of a level in the spec's order.
    order = {at: index for index, at in enumerate(spec.levels)}
    at_levels.sort(key=lambda task: order[task.at])
    return (*at_levels, *under_noises, *without_noise)


def _noises_of(spec: AuditSpec, entry: EstimatorSpec, label: str) -> list[NoiseSpec]:
    """The noises of an estimator that needs one: those that its entry names, or all.

    Raises:
        SpecError: the entry names an unknown noise, or the spec has no noise.
    """
    by_label = {noise.label: noise for noise in spec.noise}
    for name in entry.noise:
        if name not in by_label:
            raise SpecError(
                f"estimators: {label}",
                f"noise: the run has no noise {name!r}",
                did_you_mean(name, by_label),
            )
    noises = [noise for name, noise in by_label.items() if not entry.noise or name in entry.noise]
    if not noises:
        raise SpecError(
            spec.origin.where or "spec",
            f"the key 'noise' is missing, and {label} needs it",
            "what is done to the pixels, for example {sigma: [0.05, 8/255]}",
        )
    return noises


def refuse_unfit(tasks: Sequence[Task], noises: Mapping[str, Noise]) -> None:
    """Refuse an estimator that cannot work with its noise.

    Args:
        tasks: of the run.
        noises: the run's noises by label.

    Raises:
        SpecError: an estimator does not fit its noise.
    """
    for task in tasks:
        if task.at.noise is None:
            continue
        reason = unfit(task, noises[task.at.noise])
        if reason is not None:
            remedy = reason.instead
            others = ((label, form) for label, form in noises.items() if label != task.at.noise)
            fitting = [label for label, form in others if _fits(task, label, form)]
            if fitting:
                listed = ", ".join(fitting)
                remedy += f", or limit {task.label} to other noises (noise: [...], of {listed})"
            what = f"cannot work with the noise {task.at.noise}: {reason.what}"
            raise SpecError(f"estimators: {task.label}", what, remedy)


def _fits(task: Task, label: str, form: Noise) -> bool:
    """Whether the task's estimator can work with another noise as a whole."""
    return unfit(replace(task, at=NoiseLevel(label)), form) is None


_OF_INPUT = Need.INPUT | Need.GRADIENTS | Need.COVARIANCE | Need.BOUNDED


class Unfit(NamedTuple):
    """The reason why an estimator cannot work with a noise, and what to use instead."""

    what: str
    instead: str


def unfit(task: Task, form: Noise) -> Unfit | None:
    """The reason why an estimator cannot work with a kind of noise; None if it can."""
    estimator = task.estimator
    needs = estimator.needs
    with blaming(f"estimator {task.label}", type(estimator)):
        own_reason = estimator.unfit(form, task.at.level)
    if form.on_file and needs & _OF_INPUT:
        return Unfit("it is on the files, and not on the network's input", f"use {reference()}")
    # An unmet need explains more than the estimator's own reason, which may follow from it.
    if Need.RANDOM in needs and not form.random:
        return Unfit("it does the same to an image every time", f"use {reference()}")
    if Need.COVARIANCE in needs and not isinstance(form, AdditiveNoise):
        return Unfit("it is not additive noise of a known covariance", f"use {reference()}")
    if Need.BOUNDED in needs and not form.bounded:
        return Unfit("it is unbounded", "use uniform or spatial noise")
    return Unfit(own_reason, "change the noise or the options") if own_reason else None


def check_model(tasks: Sequence[Task], model: LogitModel, image: Tensor) -> None:
    """Let every estimator check the model.

    Args:
        tasks: of the run.
        model: pixels to logits.
        image: one image (channels, height, width).

    Raises:
        ModelError: an estimator refuses the model.
    """
    image = image.to(model.device, model.dtype)
    # Once for each estimator, not for each level.
    estimators = {task.label: task.estimator for task in tasks}
    for label, estimator in estimators.items():
        with blaming(f"estimator {label}", type(estimator)):
            estimator.check_model(model, image)


def registered() -> dict[str, EntryPoint]:
    """Entry points of the installed estimators by name, in alphabetical order; nothing is imported.

    Raises:
        RobauditError: two packages register the same name, or no estimator is registered.
    """
    return installed(ESTIMATORS, "estimator")


def load(name: str, where: str = "estimators") -> type[Estimator]:
    """The class behind a name.

    Raises:
        SpecError: unknown name, with a did-you-mean.
        RobauditError: the plugin cannot be imported, is not an Estimator, or lacks a required
            definition.
    """
    return load_class(ESTIMATORS, "estimator", name, Estimator, where)  # type: ignore[type-abstract]


def reference_class() -> type[Estimator]:
    """The estimator that others are compared with.

    Raises:
        SpecError: none is installed.
    """
    return load(reference(), "the reference")


def without_gradients(quantity: Quantity) -> list[str]:
    """Installed estimators of a quantity that work with any model, also one without gradients; the
    reference alone, if it is among them."""
    classes = {name: load(name) for name in registered()}
    names = [
        name
        for name, cls in classes.items()
        if cls.quantity == quantity and Need.GRADIENTS not in cls.needs
    ]
    return [reference()] if reference() in names else names


def build(specs: Sequence[EstimatorSpec], where: str = "estimators") -> dict[str, Estimator]:
    """Estimators by label, with their options checked.

    Raises:
        SpecError: unknown name or option, bad value, or a repeated label.
        PluginError: a plugin breaks its contract.
    """
    built: dict[str, Estimator] = {}
    taken: set[str] = set()
    for i, spec in enumerate(specs):
        place = f"{where}[{i}]"
        cls = load(spec.name, place)
        with blaming(f"estimator {spec.name}", cls):
            try:
                task = Task(cls.model_validate(spec.options), spec.label)
            except ValidationError as error:
                raise explain(error, f"{place}.{spec.name}") from error
            task.cost(10)  # a plugin whose passes() fails is blamed here, not during the run
            names = task.values
        remedy = f"give one a name of its own: {{{spec.name}: {{label: ...}}}}"
        if spec.label in built:
            raise SpecError(place, f"two estimators are called {spec.label!r}", remedy)
        for name in names:
            if name in taken:
                raise SpecError(place, f"another estimator has results called {name!r}", remedy)
        built[spec.label] = task.estimator
        taken.update(names)
    return built
