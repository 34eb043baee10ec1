"""The run folder that an audit belongs to: a new one, one to resume, or one to extend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robaudit.auditing.environment import device_name, versions
from robaudit.errors import AnotherRunError, RunError
from robaudit.models.logits import LogitModel
from robaudit.progress import Listener
from robaudit.spec.model import AuditSpec, base_identity, identity
from robaudit.store.folder import RunFolder, label_of
from robaudit.store.state import State

if TYPE_CHECKING:
    import torch


def default_out(spec: AuditSpec, *, extend: bool = False) -> Path:
    """runs/<spec name>-<hash8>; to extend, the one folder of that name with the same model and data.

    Raises:
        RunError: no folder, or several, could be extended.
    """
    document = spec.document()
    exact = Path("runs") / f"{spec.name}-{identity(document)[:8]}"
    if not extend or RunFolder(exact).exists:
        return exact
    wanted = base_identity(document)
    candidates = [RunFolder(p.parent) for p in sorted(Path("runs").glob(f"{spec.name}-*/run.json"))]
    found = [folder.path for folder in candidates if folder.info()["base_identity"] == wanted]
    if len(found) == 1:
        return found[0]
    if found:
        raise RunError("--extend", f"several runs could be extended: {', '.join(map(str, found))}", "name one with --out")
    raise RunError(
        "--extend", f"there is no run of {spec.name} with this model and data under runs/", "name it with --out, or leave --extend out"
    )


def existing_info(folder: RunFolder, spec: AuditSpec, *, extend: bool) -> dict[str, Any] | None:
    """run.json of the folder, or None when no run was begun there.

    A run in the folder that is this spec's by default may have been extended since: it holds what is asked and more.

    Raises:
        RunError: the folder holds a run of another spec.
    """
    if not folder.exists:
        if extend:
            raise RunError(str(folder.path), "there is no run to extend", "leave --extend out")
        return None
    info, document = folder.info(), spec.document()
    if info["base_identity"] != base_identity(document):
        what = "holds a run of another spec (model, data set, noise, seed or precision)"
        raise AnotherRunError(str(folder.path), what, "choose another --out")
    own = folder.path == default_out(spec) and identity(extended(spec, info, str(folder.path)).document()) == info["identity"]
    if info["identity"] != identity(document) and not extend and not own:
        raise RunError(
            str(folder.path),
            "holds a run with other noise levels, estimators or limit",
            "add --extend to extend it, or choose another --out",
        )
    return info


def refuse_another_machine(old: Mapping[str, Any], model: LogitModel, device: torch.device, where: str, ears: Listener) -> None:
    """Refuse to go on where the weights or the noise would be others; warn where rounding may be.

    Args:
        old: run.json of the run so far.
        model, device: of this session.
        where: the run folder.
        ears: hears the warning.

    Raises:
        RunError: other weights, or another kind of device.
    """
    if old["model"]["sha256"] != model.sha256:
        raise AnotherRunError(where, "was made with other weights", "choose another --out")
    if _kind(old["device"]) != _kind(device_name(device)):
        raise AnotherRunError(where, f"was begun on {old['device']}, where the noise is another", "choose another --out")
    now, then = versions(), old.get("versions", {})
    changed = [
        f"{name} {then[name]} (now {now[name]})"
        for name in ("robaudit", "torch", "numpy", "scipy")
        if then.get(name) not in (None, now[name])
    ]
    if changed:
        ears.warn(f"{where}: was begun with {', '.join(changed)}: its rows may differ in their last digits from those made now")


def _kind(device: str) -> str:
    """cpu, or cuda and the model: what the noise depends on."""
    name, _, model = device.partition(" ")
    kind = name.partition(":")[0]
    return kind if kind == "cpu" else f"{kind} {model}"


def refuse_other_options(state: State, estimators: Mapping[str, Any], where: str) -> None:
    """Refuse to take rows of an extension that was never finished for those of an estimator that has its name and other options.

    Args:
        state: what the run has computed.
        estimators: the spec's entries by their names in the results.
        where: the run folder.

    Raises:
        RunError: rows were made with other options.
    """
    for label, entry in state.entries():
        if estimators.get(label, entry) != entry:
            raise RunError(where, f"has run {label} with other options ({entry['options']})", "give the new one a label of its own")


def refuse_changed_data(state: State, seen: Mapping[str, tuple[str, int | None]], where: str) -> None:
    """Refuse to go on with images or labels that are not those of the run.

    Args:
        state: what the run has computed.
        seen: digest of the pixels and label by sample id, of the images looked at now.
        where: what messages call the data set.

    Raises:
        RunError: one differs.
    """
    for sample_id, *before in state.labels(seen):
        if (*before,) != seen[sample_id]:
            what = "image" if seen[sample_id][0] != before[0] else "label"
            raise AnotherRunError(f"{where}: {sample_id}", f"this {what} has changed since the run began", "choose another --out")


def extended(spec: AuditSpec, info: Mapping[str, Any], where: str) -> AuditSpec:
    """The union of an existing run and a spec: noise levels, estimators and the larger limit.

    Raises:
        RunError: an estimator of the run has the same name and other options.
    """
    old, new = info["spec"], spec.document()
    estimators = list(old["estimators"])
    by_label = {label_of(entry): entry for entry in estimators}
    for entry in new["estimators"]:
        same = by_label.setdefault(label_of(entry), entry)
        if same is entry:
            estimators.append(entry)
        elif same != entry:
            raise RunError(
                where, f"has run {label_of(entry)} with other options ({same['options']})", "give the new one a label of its own"
            )
    limits = (old["dataset"]["limit"], new["dataset"]["limit"])
    document = {
        **new,
        "dataset": {**new["dataset"], "limit": None if None in limits else max(limits), "sample": _larger(old, new)},
        "noise": {**new["noise"], "sigma": list(dict.fromkeys([*old["noise"]["sigma"], *new["noise"]["sigma"]]))},
        "estimators": estimators,
    }
    return AuditSpec.model_validate(document).located(spec.base_dir, spec.name)


def _larger(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any] | None:
    """The larger of two random subsets of the same seed, which contains the smaller."""
    samples = [document["dataset"]["sample"] for document in (old, new)]
    return None if None in samples else max(samples, key=lambda sample: int(sample["size"]))


INTERIM_RECORD = "looks.json"
"""In the folder of a run that was sampled until gates were decided: see :mod:`robaudit.gates.interim`."""


def refuse_other_gates(folder: Path, info: Mapping[str, Any], gates: Sequence[str]) -> None:
    """Refuse to give a run that was sampled for gates other ones.

    Args:
        folder: the run's.
        info: its run.json.
        gates: of the spec that is asked for now.

    Raises:
        RunError: its gates are others than those of run.json, and it was sampled for gates.
    """
    if list(gates) != list(info["spec"].get("gates", ())) and (folder / INTERIM_RECORD).exists():
        raise sampled_for_other_gates(folder)


def sampled_for_other_gates(folder: Path) -> RunError:
    """What is said of other gates on a run that was sampled for some."""
    return RunError(
        str(folder), "was sampled for other gates", "decide gates on it with robaudit gate RUN --gate ..., or choose another --out"
    )
