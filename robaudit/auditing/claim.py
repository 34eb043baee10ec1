"""What a run folder says of files outside it, opened for `verify` and for pictures of samples.

A run folder is a claim: it may come from a stranger. So nothing that it names is downloaded, its code does not run unless the user says
``--trust``, and what is opened counts only if it has the digest that the run recorded.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from robaudit.errors import RunError
from robaudit.noise.registry import Noise, build
from robaudit.spec.errors import explain
from robaudit.spec.model import AuditSpec, DatasetSpec, TorchvisionSpec
from robaudit.store.run import Run


def spec_of(run: Run) -> AuditSpec:
    """The spec in a run's run.json.

    Raises:
        SpecError: it is none.
    """
    try:
        return AuditSpec.model_validate(run.info["spec"]).located(Path(run.info["spec_folder"]), run.info["name"])
    except ValidationError as error:
        raise explain(error, AuditSpec, f"{run.path}/run.json, spec") from error


def without_download(data: DatasetSpec) -> DatasetSpec:
    """The same data set, which must be here already."""
    return data.model_copy(update={"download": False}) if isinstance(data, TorchvisionSpec) else data


def noises_of(run: Run, spec: AuditSpec) -> tuple[Noise, ...]:
    """The noises of a spec of the run, made from the files that the run was made with.

    Raises:
        RunError: a file of a noise has another digest.
    """
    noises = build(spec.noise, spec.base_dir)
    for noise in noises:
        if noise.digests != run.info.get("noise_files", {}).get(noise.label, {}):
            raise RunError(str(run.path), f"the files of its noise {noise.label} have changed", "restore the files the run was made with")
    return noises
