"""Train the model of a spec, and write its weights with an audit spec that names them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import save as safetensors_bytes
from torch import Tensor, nn

from robaudit.auditing.environment import pick_device
from robaudit.engine.registry import tasks_of
from robaudit.errors import RobauditError, RunError
from robaudit.files import expanded, json_bytes, read_json, remove_leftovers, write_atomically
from robaudit.gates.sources import refuse_beyond
from robaudit.memory import is_out_of_memory
from robaudit.methods.training.loop import fit
from robaudit.methods.training.network import (
    build_network,
    build_objective,
    check_fit,
    data_digest,
    model_section,
    read_images,
)
from robaudit.methods.training.orthogonal import plain_state
from robaudit.methods.training.spec import TrainingSpec
from robaudit.methods.training.training_objective import Batch, Objective
from robaudit.plugins import blaming
from robaudit.progress import Listener

WEIGHTS = "model.safetensors"
AUDIT = "audit.yaml"
RECORD = "training.json"
_IDENTITY = "identity"  # key of the record
_ROWS = 1000  # images of a pass that measures the accuracy


def train(
    spec: TrainingSpec,
    *,
    out: Path | None = None,
    device: str | None = None,
    trust: bool = False,
    listener: Listener | None = None,
) -> Path:
    """Train a model; the folder of the results.

    The folder holds ``model.safetensors``, ``audit.yaml`` for ``robaudit estimate``, and
    ``training.json`` with the spec, the loss of each epoch and the accuracy.

    Args:
        spec: from :func:`load_training` or :func:`training_spec`.
        out: the folder; default: the spec's.
        device: overrides the spec's.
        trust: whether Python code that the spec names may run.
        listener: receives the progress.

    Raises:
        RobauditError: the spec, its data or its network cannot be used, or the folder belongs to
            another training.
    """
    listener = listener or Listener()
    torch_device = pick_device(device or spec.device, "device")
    folder = out or _default_folder(spec)
    objective = build_objective(spec)
    audit = spec.audit_spec()
    # what the audit would refuse, before the training
    tasks_of(audit)
    refuse_beyond(audit)
    images, labels = read_images(spec.dataset, spec, listener, trust=trust)
    identity = spec.identity(data_digest(images, labels))
    if _finished(folder, identity):
        listener.note(f"{folder / WEIGHTS} is there already")
        return folder
    audit_data = (images, labels)
    if "dataset" in spec.audit:
        audit_data = read_images(audit.dataset, spec, listener, trust=trust)
    bare, network = build_network(spec, trust=trust)
    for data in ((images, labels), audit_data):
        check_fit(network, *data, spec.origin.place(("network",)))
    _prepare(folder)
    try:
        network = network.to(torch_device)
        images = images.to(torch_device)
        labels = labels.to(torch_device)
        losses = _fitted(network, objective, images, labels, spec, listener)
    finally:
        listener.end()
    _, audit_labels = audit_data
    record = {
        _IDENTITY: identity,
        "spec": spec.model_dump(mode="json"),
        "loss": losses,
        "accuracy": accuracy(network, *audit_data),
        "accuracy_on": len(audit_labels),
        "torch": torch.__version__,
    }
    write_atomically(folder / RECORD, json_bytes(record))
    write_atomically(folder / AUDIT, _audit_bytes(spec))
    # Copies: safetensors refuses tensors that share memory.
    weights = {
        name: value.detach().cpu().clone().contiguous() for name, value in plain_state(bare).items()
    }
    # The weights last: they say that the training has ended.
    write_atomically(folder / WEIGHTS, safetensors_bytes(weights))
    return folder


def _default_folder(spec: TrainingSpec) -> Path:
    """The folder of the results: the spec's, or models/<name> in the working folder."""
    if spec.out is None:
        return Path("models") / spec.title
    return spec.origin.folder / expanded(spec.out)


def _prepare(folder: Path) -> None:
    """Create the folder, and remove the leftovers of a killed process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"cannot be made ({error.strerror})"
        raise RunError(str(folder), what, "choose another folder with --out") from error
    remove_leftovers(folder)


def _fitted(
    network: nn.Module,
    objective: Objective,
    images: Tensor,
    labels: Tensor,
    spec: TrainingSpec,
    listener: Listener,
) -> list[float]:
    """Run :func:`fit`, and explain a lack of memory and faults of plugins to the user; the mean
    loss of each epoch."""
    try:
        with blaming(f"objective {spec.objective.name}", type(objective)):
            # Two images are enough to refuse a network that the objective cannot handle.
            objective.check(Batch(network, images[:2], labels[:2]))
            return fit(network, objective, images, labels, spec, listener)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        what = f"needs more memory than {images.device} has"
        raise RobauditError("training", what, "choose a smaller batch_size") from error


def accuracy(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of images classified correctly."""
    device = next(network.parameters()).device
    with torch.no_grad():
        predictions = [network(part.to(device)).argmax(1).cpu() for part in images.split(_ROWS)]
    return float((torch.cat(predictions) == labels).double().mean())


def _finished(folder: Path, identity: str) -> bool:
    """Whether the folder holds the result of this training.

    Raises:
        RunError: it holds the result of another training, or its record is missing or damaged.
    """
    path = folder / WEIGHTS
    if not path.exists():
        return False
    if read_json(folder / RECORD).get(_IDENTITY) != identity:
        what = "is the result of another training"
        raise RunError(str(path), what, "choose another folder with --out, or delete it")
    return True


def _audit_bytes(spec: TrainingSpec) -> bytes:
    """The audit spec next to the weights; the training spec's paths become absolute, as it lies in
    another folder."""
    audit = spec.audit_spec()
    dataset = audit.dataset.model_dump(mode="json", exclude_unset=True)
    for key in ("path", "root"):
        if not isinstance(dataset.get(key), str):
            continue
        path = spec.origin.folder / expanded(dataset[key])
        if path.exists():
            dataset[key] = os.path.abspath(path)  # noqa: PTH100  links stay as they are
    document: dict[str, Any] = {
        "name": spec.title,
        "model": model_section(spec, WEIGHTS).model_dump(mode="json", exclude_unset=True),
        "dataset": dataset,
        "noise": [entry.model_dump(mode="json", exclude_unset=True) for entry in audit.noise],
    }
    for key, value in spec.audit.items():
        if key not in ("dataset", "noise"):
            document[key] = value
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True).encode()
