"""The audit behind a spectrum: a spec with every estimator that its model, noise and labels allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from robaudit.auditing.environment import pick_device
from robaudit.auditing.resume import folder_name
from robaudit.auditing.setup import make_model
from robaudit.datasets.base import Dataset, first_samples
from robaudit.datasets.load import open_dataset
from robaudit.errors import NothingLeftError, RobauditError, SpecError
from robaudit.estimators import registry
from robaudit.estimators.base import Scope
from robaudit.estimators.registry import Chosen, check_model, tasks_of, unfit
from robaudit.models.logits import LogitModel
from robaudit.noise.base import NoiseKind
from robaudit.noise.registry import build as build_noises
from robaudit.spec.model import AuditSpec, EstimatorSpec
from robaudit.store.folder import in_runs

BUDGETS: tuple[EstimatorSpec, ...] = tuple(
    EstimatorSpec(name=name, options=options)
    for name, options in (
        ("difficulty", {}),
        ("mc", {"samples": 1000}),
        ("logit_gaussian", {}),
        ("moments", {}),
        ("splitting", {"particles": 100, "p_min": 1e-6}),
        ("qnorm_path", {}),
        ("adversarial_loss", {}),
        ("noise_tolerance", {}),
        ("radius_random", {"directions": 200}),
        ("radius_attack", {}),
        ("radius_exact", {}),
        ("margin_radius", {}),
        ("smoothed_margin", {}),
        ("certified_radius", {"samples": 10_000}),
        ("certified_radius", {"samples": 10_000, "norm": "l1", "label": "certified_radius_l1"}),
        ("smoothed_attack", {}),
    )
)
"""The estimators of a spectrum, with the options that differ from their own defaults: an image takes seconds on two cores, not minutes.

One that is listed twice is for different noises; each works with the ones that the other does not.
"""
_LOOK_AT = 64  # images, for a label


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An estimator that cannot be part of the audit, or is not of some of its noises, and why."""

    name: str
    why: str
    noises: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """In a line."""
        under = f" under {', '.join(self.noises)}" if self.noises else ""
        return f"{self.name} is left out{under}: {self.why}"


def whole_spec(spec: AuditSpec, installed: Sequence[str]) -> AuditSpec:
    """The spec with every estimator of :data:`BUDGETS` that it does not name; what it names keeps its options.

    Args:
        spec: what is asked for.
        installed: names of estimators; others are not added.
    """
    own = {entry.name for entry in spec.estimators} if "estimators" in spec.model_fields_set else set()
    entries = [entry for entry in spec.estimators if entry.name in own]
    entries += [entry for entry in BUDGETS if entry.name in installed and entry.name not in own]
    return _with(spec, entries)


def fitted_spec(spec: AuditSpec, *, trust: bool, skip_bad: bool) -> tuple[AuditSpec, tuple[LeftOut, ...]]:
    """The spec with every estimator that applies, and what does not.

    An estimator that the spec itself names stays, and is refused by the audit where it cannot work; the others are limited to the
    noises that they can work with, or left out.

    Raises:
        RobauditError: the model or the data cannot be opened.
        SpecError: no estimator is left.
    """
    whole = whole_spec(spec, tuple(registry.registered()))
    own = {entry.name for entry in spec.estimators} if "estimators" in spec.model_fields_set else set()
    samples = open_dataset(spec.dataset, base_dir=spec.base_dir, trust=trust)
    if len(samples) == 0:
        raise NothingLeftError(samples.where, "the data set is empty", "give it samples")
    model = make_model(spec, None, pick_device(spec.run.device), trust=trust)
    image = next(first_samples(samples, 1, skip_bad=skip_bad)).pixels
    labelled = _labelled(samples, skip_bad=skip_bad)
    forms = {noise.label: noise.form for noise in build_noises(spec.noise, spec.base_dir, spec.written)}
    kept: list[EstimatorSpec] = []
    left: list[LeftOut] = []
    for entry in whole.estimators:
        found, why = ([entry], []) if entry.name in own else _fitted(spec, entry, forms, model, image, labelled=labelled)
        kept += found
        left += why
    if not kept:
        raise SpecError(spec.where, "no estimator can work with this model", "see robaudit estimators")
    return _with(spec, kept), tuple(_unless_another_does(left, kept, tuple(forms)))


def _fitted(
    spec: AuditSpec, entry: EstimatorSpec, forms: Mapping[str, NoiseKind], model: LogitModel, image: Tensor, *, labelled: bool
) -> tuple[list[EstimatorSpec], list[LeftOut]]:
    """The estimator, limited to what it can work with; empty where that is nothing."""
    (chosen,) = registry.build([entry])
    if chosen.estimator.needs_labels and not labelled:
        entry = EstimatorSpec(name=entry.name, options={**entry.options, "target": "predicted"})
        if "target" not in type(chosen.estimator).model_fields:
            return [], [LeftOut(entry.name, "it needs labels")]
        (chosen,) = registry.build([entry])
    if why := _refused(chosen, model, image):
        return [], [LeftOut(entry.name, why)]
    if chosen.estimator.scope is Scope.IMAGE:
        return [entry], []
    unfit = dict(_unfit(spec, entry, forms))
    fitting = [label for label in forms if label not in unfit]
    left = [LeftOut(entry.name, why, (label,)) for label, why in unfit.items()]
    if not forms:
        return [], [LeftOut(entry.name, "the spec has no noise")]
    if not fitting:
        return [], left
    return [EstimatorSpec(name=entry.name, options={**entry.options, "noise": fitting}) if unfit else entry], left


def _unless_another_does(left: Sequence[LeftOut], kept: Sequence[EstimatorSpec], labels: Sequence[str]) -> Iterator[LeftOut]:
    """What is left out, the noises of a reason together, but for those that another entry of the same estimator works with."""
    covered = {(entry.name, label) for entry in kept for label in entry.options.get("noise", labels)}
    noises: dict[tuple[str, str], dict[str, None]] = {}
    for one in left:
        if not one.noises or any((one.name, label) not in covered for label in one.noises):
            noises.setdefault((one.name, one.why), {}).update(dict.fromkeys(one.noises))
    for (name, why), found in noises.items():
        yield LeftOut(name, why, tuple(found))


def spectrum_folder(spec: AuditSpec) -> Path:
    """The run folder of the audit of a fitted spec: runs/<spec name>-spectrum-<hash8>."""
    return in_runs(folder_name(spec, "spectrum"))


def _with(spec: AuditSpec, entries: Sequence[EstimatorSpec]) -> AuditSpec:
    document = {**spec.document(), "estimators": [entry.model_dump(mode="json") for entry in entries], "gates": []}
    return AuditSpec.model_validate(document).located(spec.base_dir, spec.name, spec.written)


def _labelled(samples: Dataset, *, skip_bad: bool) -> bool:
    """Whether all of the first images have a label."""
    return all(sample.label is not None for sample in first_samples(samples, _LOOK_AT, skip_bad=skip_bad))


def _refused(chosen: Chosen, model: LogitModel, image: Tensor) -> str:
    """Why it cannot work with the model; "" where it can."""
    if "gradients" in chosen.estimator.needs and not model.differentiable:
        return "model: has no gradients"
    try:
        check_model([chosen], model, image)
    except RobauditError as error:
        return f"model: {error.what}"
    return ""


def _unfit(spec: AuditSpec, entry: EstimatorSpec, forms: Mapping[str, NoiseKind]) -> Iterator[tuple[str, str]]:
    """The noises that it cannot work with, and why."""
    for label, form in forms.items():
        (limited,) = registry.build([EstimatorSpec(name=entry.name, options={**entry.options, "noise": [label]})])
        try:
            tasks = tasks_of(spec, [limited])
        except RobauditError as error:  # the noise has no levels
            yield label, error.what
            continue
        if (why := next(filter(None, (unfit(task, form) for task in tasks)), None)) is not None:
            yield label, why.what
