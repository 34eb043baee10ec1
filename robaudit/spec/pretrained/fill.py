"""Fill in a spec's missing keys from its model's own files."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from robaudit.errors import ModelError
from robaudit.spec.model import AuditSpec, BaseDatasetSpec, ImageOptions, ModelSpec
from robaudit.spec.pretrained import hub
from robaudit.spec.pretrained.base import Pretrained
from robaudit.spec.pretrained.folder import describe
from robaudit.text import clipped, count

_GEOMETRY = ("resize", "fit", "crop", "crop_rounding", "pad")
_SHOWN = 3  # names


def filled(spec: AuditSpec) -> AuditSpec:
    """The spec with the architecture, normalisation, image size and class names that its model's own files state.

    The spec takes precedence; mean and std belong together, and so do resize and crop. A filled spec does not
    change. A model of the Hub gets the commit of its revision. ``origin.taken`` says what was filled in, for the user.

    Raises:
        RobauditError: the model's files are damaged, or of a model that is not supported.
    """
    if spec.origin.taken:
        return spec
    found, model = describe(spec.model, spec.base_dir), _commit(spec.model)
    if found is None and not model:
        return spec
    dataset = dict[str, Any]()
    if found is None:
        found = Pretrained(spec.model.path or "", spec.model.architecture or "a model without a configuration")
    else:
        model |= _for_model(spec.model, found)
        dataset = for_dataset(type(spec.dataset), spec.dataset.model_fields_set, found)
    try:
        changes = {
            "model": ModelSpec.model_validate({**spec.model.model_dump(exclude_unset=True), **model}),
            "dataset": type(spec.dataset)
            .model_validate({**spec.dataset.model_dump(exclude_unset=True), **dataset})
            .naming(found.class_names),
        }
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        what = f"gives {'.'.join(map(str, first['loc']))} a value that a spec cannot have: {first['msg']}"
        raise ModelError(found.source, what, "restore the model's own file, or correct it") from error
    source = found.source.replace(f"{spec.base_dir}/", "")
    taken = _lines(found, {**model, **dataset}, source, files=isinstance(spec.dataset, ImageOptions))
    return spec.model_copy(update=changes).coming(replace(spec.origin, taken=taken))


def _for_model(given: ModelSpec, found: Pretrained) -> dict[str, Any]:
    said, taken = given.model_fields_set, dict[str, Any]()
    if "architecture" not in said:
        taken["architecture"] = found.architecture
    if given.architecture in (None, found.architecture) and found.options:
        missing = {key: value for key, value in found.options.items() if key not in given.architecture_options}
        if missing:
            taken["architecture_options"] = {**given.architecture_options, **missing}
    if "mean" not in said and "std" not in said:
        if found.unclear is not None:
            raise found.unclear
        taken |= {key: value for key, value in (("mean", found.mean), ("std", found.std)) if value}
    return taken


def _commit(given: ModelSpec) -> dict[str, Any]:
    """The current commit of a model on the Hub, if the spec does not name one."""
    if not hub.is_hub(given.path):
        return {}
    commit = hub.config_folder(given.path or "", given.revision).name
    return {} if commit == given.revision else {"revision": commit}


def for_dataset(kind: type[BaseDatasetSpec], said: Set[str], found: Pretrained) -> dict[str, Any]:
    """The keys of a data set that the model's own files give.

    Args:
        kind: of the data set.
        said: the keys that the spec has itself; of those that place the image, one is enough.
        found: what the files say.
    """
    taken = dict[str, Any]()
    if issubclass(kind, ImageOptions):
        closed = {*said, *(_GEOMETRY if said & set(_GEOMETRY) else ())}
        taken = {key: value for key, value in found.images.items() if key not in closed}
        if kind.model_fields["channels"].default is None:
            taken.pop("channels", None)
    if kind.names_from_model and found.class_names and "class_names" not in said:
        taken["class_names"] = found.class_names
        if found.class_ids and "class_ids" not in said:
            taken["class_ids"] = found.class_ids
    return taken


def _lines(found: Pretrained, taken: dict[str, Any], source: str, *, files: bool) -> tuple[str, ...]:
    """The filled values in a line for the user; for data without image files, also the size that the model expects."""
    shown = [f"{key} {_value(taken[key])}" for key in ("mean", "std", *_GEOMETRY, "interpolation", "channels", "revision") if key in taken]
    if "class_names" in taken:
        names = taken["class_names"]
        listed = ", ".join(clipped(name, 40) for name in names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        shown.append(f"{count(len(names), 'class name')} ({listed})")
    side = found.images.get("crop", found.images.get("resize"))
    if side is not None and not files:
        height, width = side if isinstance(side, tuple) else (side, side)
        shown.append(f"made for images of {height} x {width}, which the data must have already")
    options = found.options if "architecture_options" in taken else {}
    with_options = f" ({', '.join(f'{key} {value}' for key, value in options.items())})" if options else ""
    head = f"{found.architecture}{with_options}" if "architecture" in taken or not shown else ""
    line = f"from {source}: {'; '.join(part for part in (head, *shown) if part)}"
    return (line, *(f"{source}: {note}" for note in found.notes))


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(f"{one:.6g}" for one in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
