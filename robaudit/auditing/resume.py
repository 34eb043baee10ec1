"""The run folder that an audit belongs to: a new one, one to resume, or one to extend."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robaudit.auditing.environment import image_digest
from robaudit.auditing.prepare import CheckedAudit
from robaudit.datasets.dataset import Dataset
from robaudit.errors import AnotherRunError, RunError, SampleError
from robaudit.levels import level_name_in, without_levels
from robaudit.progress import Listener
from robaudit.runs.folder import RUNS, RunFolder, in_runs
from robaudit.runs.info import Measured, RunInfo, UntilDecided, device_type, kind_of
from robaudit.runs.state import State
from robaudit.settings import EXTEND, GATE, OUT, UNTIL_DECIDED
from robaudit.spec.model import IN_MEMORY, AuditSpec, base_identity, identity
from robaudit.spec.origin import Origin


def folder_name(spec: AuditSpec, purpose: str = "") -> str:
    """<spec name>-<hash8>, or <spec name>-<purpose>-<hash8> for an audit derived from the spec for
    a purpose."""
    return "-".join(filter(None, (spec.stem, purpose, identity(spec.document())[:8])))


def default_out(spec: AuditSpec, purpose: str = "", *, extend: bool = False) -> Path:
    """runs/<:func:`folder_name`>; to extend a run, the only folder of the spec's name with the same
    model and data.

    Raises:
        RunError: there is no such folder or more than one, or it is reached through a symbolic
            link.
    """
    document = spec.document()
    exact = in_runs(folder_name(spec, purpose))
    if not extend or RunFolder(exact).exists:
        return exact
    wanted = base_identity(document)
    candidates = [RunFolder(p.parent) for p in sorted(RUNS.glob(f"{spec.stem}-*/run.json"))]
    fitting = [folder.path for folder in candidates if folder.info().base_identity == wanted]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise RunError(
            EXTEND,
            f"several runs could be extended: {', '.join(map(str, fitting))}",
            "name one with " + OUT,
        )
    raise RunError(
        EXTEND,
        f"there is no run of {spec.stem} with this model and data under runs/",
        "name it with " + OUT + ", or leave " + EXTEND + " out",
    )


def existing_info(
    folder: RunFolder, spec: AuditSpec, *, extend: bool = False, until: UntilDecided | None = None
) -> RunInfo | None:
    """The folder's run.json, or None if there is no run.

    A run in the spec's default folder may have been extended since; it then holds more than the
    spec asks for.

    Args:
        folder: the run's.
        spec: what is asked for.
        extend: whether the spec may ask for more than the run has.
        until: the analyses of a run that is sampled until its gates are decided; the run may lack
            the last.

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
        what = "holds a run of another spec (model, data set, seed or precision)"
        raise AnotherRunError(str(folder.path), what, "choose another " + OUT)
    _joined(info.spec["noise"], document["noise"], str(folder.path))
    own = (
        folder.path == RUNS / folder_name(spec)
        and identity(extended(spec, info, str(folder.path)).document()) == info.identity
    )
    if info.identity != identity(document) and not (extend or own or is_next(until, info)):
        what = "holds a run with other noise levels, estimators or limit"
        remedy = "add " + EXTEND + " to extend it"
        if info.until_decided is not None and until is None:
            what = "holds a run that is sampled until its gates are decided"
            remedy = "add " + UNTIL_DECIDED + " or its " + GATE
        raise RunError(str(folder.path), what, remedy + ", or choose another " + OUT)
    return info


def is_next(until: UntilDecided | None, info: RunInfo) -> bool:
    """Whether the last analysis is the run's next one, for which its estimators take more draws."""
    return (
        until is not None
        and info.until_decided is not None
        and info.until_decided.draws == until.draws[:-1]
    )


def refuse_another_machine(old: RunInfo, now: Measured, where: str, listener: Listener) -> None:
    """Refuse to continue a run with other weights or other noise; warn where rounding may differ.

    Args:
        old: run.json so far.
        now: what this session would write there.
        where: the run folder.
        listener: receives the warning.

    Raises:
        RunError: other weights, or another kind of device.
    """
    if old.model.sha256 != now.model.sha256:
        what = "was made with other weights" + (
            " or other code" if now.model.format == IN_MEMORY else ""
        )
        raise AnotherRunError(where, what, "choose another " + OUT)
    here = now.device
    if kind_of(old.device) != kind_of(here):
        raise AnotherRunError(
            where,
            f"was begun on {old.device}, and this device draws other noise",
            "choose another " + OUT,
        )
    then = old.versions
    versions = now.versions
    changed = [
        f"{name} {then[name]} (now {versions[name]})"
        for name in ("robaudit", "torch", "numpy", "scipy")
        if then.get(name) not in (None, versions[name])
    ]
    if device_type(here) == "cpu" and old.device != here:
        changed.append(f"{old.device} (now {here})")
    if changed:
        listener.warn(
            f"{where}: was begun with {', '.join(changed)}: its rows may differ in the last "
            "digits from those computed now"
        )


def refuse_other_results(
    state: State, noises: Mapping[str, Any], estimators: Mapping[str, Any], where: str
) -> None:
    """Refuse a noise or an estimator whose name has rows with other options in the run, for example
    from an unfinished extension.

    Args:
        state: what the run has computed.
        noises: the spec's entries by label, without levels.
        estimators: the spec's entries by their names in the results.
        where: the run folder.

    Raises:
        RunError: rows were computed with other options or under other noise.
    """
    for label, entry in state.noises():
        now = noises.get(label, entry)
        if now != entry and {**now, "files": None} == {**entry, "files": None}:
            raise AnotherRunError(
                where,
                f"the files of its noise {label} have changed since",
                "restore them, or choose another " + OUT,
            )
        if now != entry:
            raise _other_noise(where, label)
    for _, entry in state.entries():
        if estimators.get(entry["label"], entry) != entry:
            raise _other_options(where, entry)


def _other_options(where: str, entry: Mapping[str, Any]) -> RunError:
    """The error for an estimator that the run has computed with the options of this entry."""
    options = entry["options"] | ({"noise": list(entry["noise"])} if entry["noise"] else {})
    what = f"has run {entry['label']} with other options ({options or 'its defaults'})"
    return RunError(where, what, "give the new one a label of its own")


def refuse_other_data(
    state: State, audit: CheckedAudit, old: RunInfo | None, *, extend: bool
) -> None:
    """Refuse to continue if images or labels differ from the run's; data in memory, which no file
    identifies, are read whole.

    Args:
        state: what the run has computed.
        audit: with the images seen so far.
        old: run.json, if the run exists.
        extend: whether a finished run may get more samples.

    Raises:
        RunError: one differs, is missing or is new.
    """
    where = audit.data.where
    seen = audit.seen
    if old is not None and audit.spec.dataset.kind == IN_MEMORY:
        seen = _all_seen(audit.data)
        known = state.images()
        if (lost := next((name for name in known if name not in seen), None)) is not None:
            raise AnotherRunError(
                where, f"no longer has the sample {lost!r} of the run", "choose another " + OUT
            )
        known |= dict.fromkeys((skip.sample_id for skip in old.skipped), "")
        if (
            old.complete
            and not extend
            and (new := next((name for name in seen if name not in known), None)) is not None
        ):
            what = f"has the sample {new!r}, which the finished run does not have"
            raise AnotherRunError(where, what, "extend the run, or choose another " + OUT)
    for sample_id, *before in state.labels(seen):
        if (*before,) != seen[sample_id]:
            what = "image" if seen[sample_id][0] != before[0] else "label"
            raise AnotherRunError(
                f"{where}: {sample_id}",
                f"this {what} has changed since the run began",
                "choose another " + OUT,
            )


def _all_seen(samples: Dataset) -> dict[str, tuple[str, int | None]]:
    """Pixel digest and label of every readable sample, by id: data in memory have no file to
    identify them."""
    seen: dict[str, tuple[str, int | None]] = {}
    for index in range(len(samples)):
        with contextlib.suppress(SampleError):
            sample = samples[index]
            seen[sample.id] = (image_digest(sample), sample.label)
    return seen


def extended(spec: AuditSpec, info: RunInfo, where: str) -> AuditSpec:
    """The union of an existing run and a spec: noise levels, estimators and the larger limit.

    Raises:
        RunError: an estimator or a noise of the run has the same name, but other options.
    """
    old = info.spec
    new = spec.document()
    estimators = list(old["estimators"])
    by_label = {entry["label"]: entry for entry in estimators}
    for entry in new["estimators"]:
        same = by_label.setdefault(entry["label"], entry)
        if same is entry:
            estimators.append(entry)
        elif same != entry:
            raise _other_options(where, same)
    limits = (old["dataset"]["limit"], new["dataset"]["limit"])
    document = {
        **new,
        "dataset": {
            **new["dataset"],
            "limit": None if None in limits else max(limits),
            "sample": _larger(old, new),
        },
        "noise": _joined(old["noise"], new["noise"], where),
        "estimators": estimators,
    }
    origin = Origin(
        folder=spec.base_dir, name=spec.stem, taken=spec.origin.taken, own=spec.origin.own
    )
    return AuditSpec.model_validate(document).with_origin(origin)


def _joined(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], where: str
) -> list[dict[str, Any]]:
    """The noises of both, each with the levels of both.

    Raises:
        RunError: two have the same name, but other options.
    """
    joined = {entry["name"]: dict(entry) for entry in old}
    for entry in new:
        same = joined.setdefault(entry["name"], dict(entry))
        key = level_name_in(entry)
        if key not in same or without_levels(same) != without_levels(entry):
            raise _other_noise(where, entry["name"])
        same[key] = list(dict.fromkeys([*same[key], *entry[key]]))
    return list(joined.values())


def _other_noise(where: str, label: str) -> RunError:
    what = f"has run the noise {label} with other options"
    return AnotherRunError(
        where, what, "give the new one a name of its own, or choose another " + OUT
    )


def _larger(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any] | None:
    """The larger of two random subsets of the same seed; it contains the smaller."""
    samples = [document["dataset"]["sample"] for document in (old, new)]
    return None if None in samples else max(samples, key=lambda sample: int(sample["size"]))
