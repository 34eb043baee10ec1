"""Open the files outside a run folder that it names, for `verify` and for pictures of samples.

A run folder is a claim: it may come from a stranger. Nothing that it names is downloaded, its code
does not run without ``--trust``, and an opened file counts only if it has the digest that the run
recorded.
"""

from __future__ import annotations

from pathlib import Path

from robaudit.datasets.open_dataset import column_of
from robaudit.errors import RunError
from robaudit.noise.installed import build
from robaudit.noise.process import NoiseProcess
from robaudit.runs.run import Run
from robaudit.spec.model import AuditSpec, BaseDatasetSpec
from robaudit.spec.origin import Origin
from robaudit.spec.read import validated


def spec_of(run: Run) -> AuditSpec:
    """The spec in a run's run.json.

    Raises:
        SpecError: it is invalid.
    """
    # Relative paths in the spec are relative to the folder of the spec, not to the run's.
    origin = Origin(f"{run.path}/run.json, spec", Path(run.info.spec_folder), run.info.name)
    return validated(run.info.spec, origin)


def without_download(data: BaseDatasetSpec) -> BaseDatasetSpec:
    """The same data set with downloading switched off."""
    if "download" not in type(data).model_fields:
        return data
    return data.model_copy(update={"download": False})


def column_of_run(run: Run, name: str, data: AuditSpec | None) -> dict[str, str]:
    """The values of a column of a run's data, by sample id.

    Args:
        run: the run.
        name: the column's name.
        data: a spec whose data set to read; None: the run's own.

    Raises:
        RobauditError: the data set has no such column, or lacks a sample.
    """
    spec = data or spec_of(run)
    return column_of(spec.dataset, name, base_dir=spec.base_dir, ids=list(run.table.ids))


def noises_of(run: Run, spec: AuditSpec) -> tuple[NoiseProcess, ...]:
    """The noises of a spec of the run, made from the files that the run was made with.

    Raises:
        RunError: a file of a noise has another digest.
    """
    noises = build(spec.noise, spec.base_dir)
    for noise in noises:
        # The files are read when the noise is built; their digests are those of what was read.
        if noise.digests != run.info.noise_files.get(noise.label, {}):
            raise RunError(
                str(run.path),
                f"the files of its noise {noise.label} have changed",
                "restore the files the run was made with",
            )
    return noises
