"""The run folder that an audit belongs to: a new one, one to resume, or one to extend."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from robaudit.auditing.environment import image_digest
from robaudit.auditing.prepare import CheckedAudit
from robaudit.datasets.dataset import Dataset
from robaudit.errors import AnotherRunError, RunError, SampleError
from robaudit.levels import level_name_in, without_levels
from robaudit.progress import Listener
from robaudit.runs.folder import RUNS, RunFolder, in_runs
from robaudit.runs.info import Measured, RunInfo, device_type, kind_of
from robaudit.runs.state import State
from robaudit.settings import EXTEND, LIMIT, OUT
from robaudit.spec.model import IN_MEMORY, AuditSpec, base_identity, identity
from robaudit.spec.origin import Origin
from robaudit.text import count


def folder_name(spec: AuditSpec) -> str:
    """<spec name>-<hash8>."""
    return f"{spec.stem}-{identity(spec.document())[:8]}"


def default_out(spec: AuditSpec, *, extend: bool = False) -> Path:
    """runs/<:func:`folder_name`>; to extend a run, the only folder of the spec's name with the same
    model and data.

    Raises:
        RunError: there is no such folder or more than one, or it is reached through a symbolic
            link.
    """
    document = spec.document()
    exact = in_runs(folder_name(spec))
    if not extend or RunFolder(exact).exists:
        return exact
    # The folder was named after the spec before the extension; base_identity leaves out what an
    # extension may change.
    wanted = base_identity(document)
    paths = sorted(RUNS.glob(f"{spec.stem}-*/run.json"))
    folders = [RunFolder(path.parent) for path in paths]
    matching = [folder.path for folder in folders if folder.info().base_identity == wanted]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise RunError(
            EXTEND,
            f"several runs could be extended: {', '.join(map(str, matching))}",
            "name one with " + OUT,
        )
    raise RunError(
        EXTEND,
        f"there is no run of {spec.stem} with this model and data under runs/",
        "name it with " + OUT + ", or leave " + EXTEND + " out",
    )


def existing_info(folder: RunFolder, spec: AuditSpec, *, extend: bool = False) -> RunInfo | None:
    """The folder's run.json, or None if there is no run.

    A run in the spec's default folder may have been extended since; it then holds more than the
    spec says.

    Args:
        folder: of the run.
        spec: of the audit.
        extend: whether the spec may have more than the run has.

    Raises:
        RunError: the folder holds a run of another spec.
    """
    if not folder.exists:
        if extend:
            raise RunError(
                str(folder.path), "there is no run to extend", "leave " + EXTEND + " out"
            )
        return None
    info = folder.info()
    document = spec.document()
    if info.base_identity != base_identity(document):
        what = "holds a run of another spec (model, data set, flag, seed or precision)"
        raise AnotherRunError(str(folder.path), what, "choose another " + OUT)
    # Raises if a noise has other options: the better message, even if more differs.
    _joined_noises(info.spec["noise"], document["noise"], str(folder.path))
    same_spec = info.identity == identity(document)
    # In the default folder, which nobody else would use, the run may contain the spec.
    contains_spec = (
        folder.path == RUNS / folder_name(spec)
        and identity(extended(spec, info, str(folder.path)).document()) == info.identity
    )
    if not (same_spec or extend or contains_spec):
        what = "holds a run with other noise levels, estimators or limit"
        remedy = "add " + EXTEND + " to extend it, or choose another " + OUT
        raise RunError(str(folder.path), what, remedy)
    return info


def refuse_another_machine(old: RunInfo, now: Measured, where: str, listener: Listener) -> None:
    """Refuse to continue a run with other weights or other noise; warn where rounding may differ.

    Args:
        old: run.json so far.
        now: the same part of run.json as this session measured it.
        where: the run folder.
        listener: receives the warning.

    Raises:
        RunError: other weights, or another kind of device.
    """
    if old.model.sha256 != now.model.sha256:
        what = "was made with other weights"
        if now.model.format == IN_MEMORY:
            what += " or other code"  # of a network in memory, the digest covers both
        raise AnotherRunError(where, what, "choose another " + OUT)
    if kind_of(old.device) != kind_of(now.device):
        raise AnotherRunError(
            where,
            f"was begun on {old.device}, and this device draws other noise",
            "choose another " + OUT,
        )
    # The packages whose kernels and formulae set the last digits.
    changed = [
        f"{name} {old.versions[name]} (now {now.versions[name]})"
        for name in ("robaudit", "torch", "numpy", "scipy")
        if old.versions.get(name) not in (None, now.versions[name])
    ]
    # On CUDA the kind of device, which is compared above, has the model already.
    if device_type(now.device) == "cpu" and old.device != now.device:
        changed.append(f"{old.device} (now {now.device})")
    if changed:
        listener.warn(
            f"{where}: was begun with {', '.join(changed)}: its rows may differ in the last "
            "digits from those computed now"
        )


def refuse_other_results(
    state: State, noises: Mapping[str, Any], estimators: Mapping[str, Any], where: str
) -> None:
    """Refuse a noise or an estimator whose name has rows with other options in the run.

    Such rows may be those of an unfinished extension, which run.json does not mention.

    Args:
        state: of the run.
        noises: the spec's entries by label, without levels.
        estimators: the spec's entries by label.
        where: the run folder.

    Raises:
        RunError: rows were computed with other options or under other noise.
    """
    for label, entry in state.noises():
        current = noises.get(label, entry)
        if current == entry:
            continue
        # Equal but for the digests of their files.
        if {**current, "files": None} == {**entry, "files": None}:
            raise AnotherRunError(
                where,
                f"the files of its noise {label} have changed since",
                "restore them, or choose another " + OUT,
            )
        raise _other_noise(where, label)
    for _, entry in state.entries():
        if estimators.get(entry["label"], entry) != entry:
            raise _other_options(where, entry)


def _other_options(where: str, entry: Mapping[str, Any]) -> RunError:
    """The error for an estimator that the run has computed with the options of this entry."""
    options = dict(entry["options"])
    if entry["noise"]:
        options["noise"] = list(entry["noise"])
    what = f"has run {entry['label']} with other options ({options or 'its defaults'})"
    return RunError(where, what, "give the new one a label of its own")


def refuse_other_data(
    state: State, audit: CheckedAudit, old: RunInfo | None, *, extend: bool
) -> None:
    """Refuse to continue if images or labels differ from the run's.

    Of data on disk the images of the input check are compared here, the others when they are
    computed. Data in memory, which no file identifies, are read whole.

    Args:
        state: of the run.
        audit: with the images that the input check has read.
        old: run.json, if the run exists.
        extend: whether a finished run may get more samples.

    Raises:
        RunError: a sample differs, is missing or is new.
    """
    where = audit.data.where
    seen = audit.seen
    if old is not None and audit.spec.dataset.kind == IN_MEMORY:
        seen = _digests_and_labels(audit.data)
        _refuse_other_samples(state, seen, old, where, extend=extend)
    for sample_id, digest, label in state.labels(seen):
        if (digest, label) != seen[sample_id]:
            what = "image" if seen[sample_id][0] != digest else "label"
            raise AnotherRunError(
                f"{where}: {sample_id}",
                f"this {what} has changed since the run began",
                "choose another " + OUT,
            )


def _refuse_other_samples(
    state: State, sample_ids: Iterable[str], old: RunInfo, where: str, *, extend: bool
) -> None:
    """Refuse data without a sample of the run, or with one that the finished run does not have.

    Raises:
        RunError: a sample is missing or new.
    """
    present = dict.fromkeys(sample_ids)
    recorded = state.images()
    lost = next((name for name in recorded if name not in present), None)
    if lost is not None:
        raise AnotherRunError(
            where, f"no longer has the sample {lost!r} of the run", "choose another " + OUT
        )
    if not old.complete or extend:
        return
    # A skipped sample has no digest in the state, but the run knows it.
    skipped = {skip.sample_id for skip in old.skipped}
    new = next((name for name in present if name not in recorded and name not in skipped), None)
    if new is not None:
        what = f"has the sample {new!r}, which the finished run does not have"
        raise AnotherRunError(where, what, "extend the run, or choose another " + OUT)


def _digests_and_labels(samples: Dataset) -> dict[str, tuple[str, int | None]]:
    """Pixel digest and label of every readable sample, by id."""
    seen: dict[str, tuple[str, int | None]] = {}
    for index in range(len(samples)):
        with contextlib.suppress(SampleError):
            sample = samples[index]
            seen[sample.id] = (image_digest(sample), sample.label)
    return seen


def refuse_fewer(spec: AuditSpec, info: RunInfo, where: str) -> None:
    """Refuse an extension that would compute more samples than the spec asks for.

    Raises:
        RunError: the spec has a smaller limit than the run.
    """
    sizes = []
    for document in (info.spec, spec.document()):
        dataset = document["dataset"]
        subset = dataset["sample"] or {"size": None}
        sizes.append(dataset["limit"] or subset["size"])
    existing, wanted = sizes
    if wanted is None or (existing is not None and existing <= wanted):
        return
    # A run that has all of it computes nothing.
    if info.complete and identity(extended(spec, info, where).document()) == info.identity:
        return
    samples = "all samples" if existing is None else count(existing, "sample")
    raise RunError(
        where,
        f"has {samples}, and an extension computes all of them, not {wanted}",
        "leave " + LIMIT + " out, or choose another " + OUT,
    )


def extended(spec: AuditSpec, info: RunInfo, where: str) -> AuditSpec:
    """The union of an existing run and a spec: noise levels, estimators and the larger limit.

    Raises:
        RunError: an estimator or a noise of the run has the same name, but other options.
    """
    old = info.spec
    new = spec.document()
    # The run's come first, so that its rows keep their order in the outputs.
    estimators = list(old["estimators"])
    by_label = {entry["label"]: entry for entry in estimators}
    for entry in new["estimators"]:
        existing = by_label.get(entry["label"])
        if existing is None:
            by_label[entry["label"]] = entry
            estimators.append(entry)
        elif existing != entry:
            raise _other_options(where, existing)
    limits = (old["dataset"]["limit"], new["dataset"]["limit"])
    dataset = {
        **new["dataset"],
        "limit": None if None in limits else max(limits),  # None: all samples
        "sample": _larger_subset(old, new),
    }
    document = {
        **new,
        "dataset": dataset,
        "noise": _joined_noises(old["noise"], new["noise"], where),
        "estimators": estimators,
    }
    origin = Origin(
        folder=spec.base_dir, name=spec.stem, taken=spec.origin.taken, own=spec.origin.own
    )
    return AuditSpec.model_validate(document).with_origin(origin)


def _joined_noises(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], where: str
) -> list[dict[str, Any]]:
    """The noises of both specs, each with the levels of both.

    Raises:
        RunError: two have the same name, but other options.
    """
    joined = {entry["name"]: dict(entry) for entry in old}
    for entry in new:
        existing = joined.setdefault(entry["name"], dict(entry))
        key = level_name_in(entry)
        if key not in existing or without_levels(existing) != without_levels(entry):
            raise _other_noise(where, entry["name"])
        existing[key] = list(dict.fromkeys([*existing[key], *entry[key]]))
    return list(joined.values())


def _other_noise(where: str, label: str) -> RunError:
    """The error for a noise that the run has with other options."""
    what = f"has run the noise {label} with other options"
    return AnotherRunError(
        where, what, "give the new one a name of its own, or choose another " + OUT
    )


def _larger_subset(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any] | None:
    """The larger of two random subsets of the same seed, which contains the smaller; None: all
    samples."""
    subsets = [document["dataset"]["sample"] for document in (old, new)]
    return None if None in subsets else max(subsets, key=lambda subset: int(subset["size"]))
