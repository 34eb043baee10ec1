"""How does a spec become a finished run? The only module that knows all the parts."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn

from robaudit import registry
from robaudit.assembly import make_engine, make_model
from robaudit.checks import InputCheck, check_input
from robaudit.datasets import open_dataset
from robaudit.datasets.base import Dataset
from robaudit.datasets.first import first_samples
from robaudit.errors import ModelError, NothingLeftError, RunError
from robaudit.estimators.engine import Engine
from robaudit.files import locked
from robaudit.finish import finish
from robaudit.identity import base_identity, identity
from robaudit.loop import Loop, OnError
from robaudit.models import LogitModel
from robaudit.models.precision import for_noisy_passes, rounded_products
from robaudit.plan import tasks_of
from robaudit.precision_check import precision_effects
from robaudit.progress import Listener, Silent
from robaudit.provenance import device_name, pick_device, versions
from robaudit.resume import default_out, existing_info, extended, refuse_changed_data
from robaudit.runlog import Logged
from robaudit.runs import SCHEMA_VERSION, Run, RunFolder, read_run
from robaudit.spec import AuditSpec
from robaudit.spec_file import load_spec


def audit(
    spec: AuditSpec | str | Path,
    *,
    out: str | Path | None = None,
    trust: bool = False,
    on_error: OnError = "stop",
    extend: bool = False,
    model: nn.Module | None = None,
    dataset: Dataset | None = None,
    listener: Listener | None = None,
) -> Run:
    """Estimate every sample's robustness and write (or resume) a run folder.

    Args:
        spec: an audit spec, or the path of a YAML file.
        out: the run folder; default runs/<spec name>-<hash8> in the working folder.
        trust: allow Python code that the spec names (``module:function``).
        on_error: stop at the first unusable sample, or skip it: skips are listed and counted.
        extend: add what the spec asks for to an existing run of the same model and data, without recomputing.
        model: audit this network instead of loading the one the spec names (mean, std and output still apply).
        dataset: audit these samples instead of opening the data set the spec names.
        listener: hears notes, warnings and progress.

    Returns:
        The finished run.

    Raises:
        RobauditError: spec, model, data or run folder are not usable (see its children).
        NothingLeftError: every sample was skipped.
    """
    asked = load_spec(Path(spec)) if isinstance(spec, str | Path) else spec
    ears = Logged(listener or Silent())
    folder = RunFolder(Path(out) if out is not None else default_out(asked, extend=extend))
    folder.check()
    old = existing_info(folder, asked, extend=extend)
    if old is not None:
        asked = extended(asked, old, str(folder.path))
    estimators = registry.build(asked.estimators)
    device = pick_device(asked.run.device)
    samples = dataset if dataset is not None else open_dataset(asked.dataset, base_dir=asked.base_dir, trust=trust)
    if len(samples) == 0:
        raise NothingLeftError(samples.where, "the data set is empty", "give it samples")
    network = make_model(asked, model, device, trust=trust)
    if old is not None and old["model"]["sha256"] != network.sha256:
        raise RunError(str(folder.path), "was made with other weights", "choose another --out")
    if old is not None and old["device"].partition(" ")[0].partition(":")[0] != device.type:
        raise RunError(str(folder.path), f"was begun on {old['device']}, where the noise is another", "choose another --out")
    for text in network.notes:
        ears.note(text)
    needs_gradients = [chosen.label for chosen in estimators if "gradients" in chosen.estimator.needs]
    if needs_gradients and not network.differentiable:
        raise ModelError(
            network.name, f"has no gradients, and {needs_gradients[0]} needs them", "use mc or softmax, or another format of the model"
        )
    noisy = for_noisy_passes(network, asked.run.precision)
    rounded, skip_bad = asked.run.precision == "tf32", on_error == "skip"
    with rounded_products(rounded):
        check = check_input(network, samples, gradients=bool(needs_gradients), skip_bad=skip_bad)
        _say(check, ears)
        image = next(first_samples(samples, 1, skip_bad=skip_bad)).pixels
        engine = make_engine(asked, network, noisy, check.classes, image)
        effects = _effects(asked, engine, samples, ears, skip_bad=skip_bad)
    folder.create()
    with rounded_products(rounded), locked(folder.path):
        parts = folder.parts()
        refuse_changed_data(parts, check.seen, samples.where)
        info = {
            **_info(asked, network, samples, device, check),
            "batch_rows": engine.rows(image.shape),
            **effects,
            "started": old["started"] if old else _now(),
        }
        if old is None or old["identity"] != info["identity"]:
            folder.write_info(info)
        finished = old is not None and old["status"] == "complete" and old["identity"] == info["identity"] and folder.whole(old)
        if not finished:
            ears.open(folder.path)
        tasks = tasks_of(asked.noise.sigma, estimators)
        with ears.until_interrupted():
            new = Loop(folder, samples, engine, tasks, on_error, ears).run(parts)
        if new or not finished:
            finish(folder, info, samples, tasks, [*parts, *new])
        else:
            ears.note(f"{folder.path}: this run is complete; nothing was recomputed")
    run = read_run(folder.path)
    for text in run.info["warnings"][len(check.warnings) :]:
        ears.warn(text)
    return run


def _effects(spec: AuditSpec, engine: Engine, dataset: Dataset, ears: Listener, *, skip_bad: bool) -> dict[str, Any]:
    """What a lower precision changes, for run.json."""
    precision = spec.run.precision
    if precision not in ("tf32", "bf16"):
        return {}
    if precision == "tf32" and engine.model.device.type == "cpu":
        ears.warn("precision tf32 is CUDA's: on the CPU this run computes in fp32")
        return {}
    effects = precision_effects(engine, dataset, spec.noise.sigma, precision, skip_bad=skip_bad)
    for effect in effects:
        ears.note(effect.text)
    return {"precision_effect": [asdict(effect) for effect in effects]}


def _say(check: InputCheck, ears: Listener) -> None:
    if check.labelled:
        ears.note(f"clean accuracy {check.correct / check.labelled:.1%} ({check.correct} of the first {check.labelled} labelled images)")
    else:
        ears.note("no labels: accuracy is not measured")
    for text in check.warnings:
        ears.warn(text)


def _info(spec: AuditSpec, model: LogitModel, dataset: Dataset, device: torch.device, check: InputCheck) -> dict[str, Any]:
    document = spec.document()
    names = dataset.class_names
    return {
        "schema_version": SCHEMA_VERSION,
        "status": "running",
        "name": spec.name,
        "spec": document,
        "spec_folder": str(spec.base_dir),
        "identity": identity(document),
        "base_identity": base_identity(document),
        "seed": spec.run.seed,
        "device": device_name(device),
        "versions": versions(),
        "model": {"name": model.name, "format": model.format, "sha256": model.sha256, "classes": check.classes, "notes": list(model.notes)},
        "data": {"where": dataset.where, "class_names": None if names is None else list(names)},
        "noise": _noise_words(spec),
        "warnings": list(check.warnings),
    }


def _noise_words(spec: AuditSpec) -> str:
    """How noise and normalisation are applied, in the words every report prints."""
    model = spec.model
    clip = "then clipped to [0, 1]" if spec.noise.clip else "not clipped"
    normal = (
        f"mean {_listed(model.mean)} and std {_listed(model.std)} applied after it"
        if model.mean or model.std
        else "no mean/std applied after it"
    )
    return f"{spec.noise.kind} noise added to pixels in [0, 1], {clip}; {normal}"


def _listed(values: tuple[float, ...]) -> str:
    return "[" + ", ".join(f"{v:.4g}" for v in values) + "]" if values else "none"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
