"""Samples and model files on their way to another machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray

from robaudit.datasets.base import Dataset, Labels, Sample, first_samples
from robaudit.errors import ModelError, SpecError
from robaudit.models.architectures import FAMILIES
from robaudit.noise.registry import Noise
from robaudit.spec.model import AuditSpec
from robaudit.spec.pretrained.folder import INDEX, model_path, weights_file

_CHECKED = 256  # of the first samples, for the check of model and data


@dataclass(frozen=True, slots=True)
class Sent:
    """A sample on its way to a worker; pixels that are whole steps of 1/255, as nearly all are, take a byte each."""

    id: str
    label: int | None
    pixels: NDArray[np.uint8] | NDArray[np.float64]

    @classmethod
    def of(cls, sample: Sample) -> Sent:
        """The sample, packed without loss."""
        steps = (sample.pixels * 255).round()
        whole = bool(((steps <= 255) & ~steps.signbit()).all()) and torch.equal(_unpacked(steps), sample.pixels)
        return cls(sample.id, sample.label, (steps.to(torch.uint8) if whole else sample.pixels).numpy())

    def sample(self) -> Sample:
        """The sample, bit by bit."""
        pixels = torch.from_numpy(self.pixels)
        return Sample(self.id, _unpacked(pixels) if pixels.dtype == torch.uint8 else pixels, self.label)


def _unpacked(steps: torch.Tensor) -> torch.Tensor:
    return steps.to(torch.float64) / 255


@dataclass(frozen=True, slots=True)
class SentSamples:
    """The first samples of a data set that the worker cannot open, for the check of model and data."""

    where: str
    class_names: tuple[str, ...] | None
    samples: Sequence[Sent]

    def __len__(self) -> int:
        return len(self.samples)

    def sample_id(self, index: int) -> str:
        """The id that the data set has for it."""
        return self.samples[index].id

    def labels(self) -> Labels | None:
        """Those of these samples."""
        return np.array([-1 if one.label is None else one.label for one in self.samples], dtype=np.int64)

    def __getitem__(self, index: int) -> Sample:
        return self.samples[index].sample()


def first_sent(dataset: Dataset, *, skip_bad: bool) -> SentSamples:
    """The first usable samples of a data set.

    Raises:
        SampleError: one is unusable, and ``skip_bad`` is off.
        NothingLeftError: none is usable.
    """
    samples = [Sent.of(sample) for sample in islice(first_samples(dataset, _CHECKED, skip_bad=skip_bad), _CHECKED)]
    return SentSamples(dataset.where, dataset.class_names, samples)


def packed(spec: AuditSpec, noises: Sequence[Noise]) -> tuple[AuditSpec, dict[str, bytes]]:
    """A spec whose model is named relative to the files that go with it, and these files.

    Of a folder, the weights and every .json file are sent; with a file, the configuration beside it. The user's own Python code goes
    along if it is beside the spec.

    Raises:
        ModelError: a file cannot be read.
        SpecError: a noise is made from files, which are not sent.
    """
    for noise in noises:
        if noise.form.files:
            what = f"is made from files ({noise.form.files[0].name}), which are not sent"
            raise SpecError(f"noise {noise.label}", what, "put everything where all machines can read it, and leave --ship out")
    path, model = model_path(spec.model, spec.base_dir), spec.model
    if path is None:
        return spec, {}
    weights, inner = weights_file(path), f"{path.name}/" if path.is_dir() else ""
    beside = [weights, *(file for file in weights.parent.glob("*.json") if inner or file.name in ("config.json", weights.name))]
    try:
        if weights.name.endswith(INDEX):
            shards = set(json.loads(weights.read_bytes())["weight_map"].values())
            beside += [weights.parent / str(name) for name in sorted(map(str, shards))]
        files = {f"{inner}{file.name}": file.read_bytes() for file in beside}
        files |= {str(file.relative_to(spec.base_dir)): file.read_bytes() for file in _code(model.architecture or "", spec.base_dir)}
    except OSError as error:
        raise ModelError(str(error.filename or path), f"cannot be read ({error.strerror})", "give a file that you may read") from error
    except (ValueError, KeyError, AttributeError) as error:
        raise ModelError(str(weights), "is not an index of weights", "save the model again") from error
    return spec.model_copy(update={"model": model.model_copy(update={"path": path.name})}), files


def _code(architecture: str, folder: Path) -> list[Path]:
    """The Python files of ``package.module:function`` that are beside the spec."""
    top = architecture.partition(":")[0].partition(".")[0]
    if not top.isidentifier() or architecture.startswith(FAMILIES):
        return []
    return [file for file in (folder / f"{top}.py", *(folder / top).rglob("*.py")) if file.is_file()]


@contextmanager
def unpacked(spec: AuditSpec, files: Mapping[str, bytes]) -> Iterator[AuditSpec]:
    """The spec, beside the files that were sent: they lie in a folder of this machine until the model is loaded."""
    if not files:
        yield spec
        return
    with TemporaryDirectory(prefix="robaudit-") as folder:
        for name, content in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        yield spec.model_copy().located(Path(folder), spec.name, spec.written)
