"""Samples and model files on their way to another machine."""

from __future__ import annotations

import ast
import os
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
from robaudit.models.files import CONFIG, model_path, weights_file
from robaudit.models.load import guess_format
from robaudit.noise.registry import Noise
from robaudit.spec.model import AuditSpec

_CHECKED = 256  # bytes of the first samples, for the check of model and data


@dataclass(frozen=True, slots=True)
class Sent:
    """A sample packed for sending; pixels that are multiples of 1/255, as nearly all are, take a byte each."""

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
    """The first samples of a data set, for the check of model and data on a worker that cannot open it."""

    where: str
    class_names: tuple[str, ...] | None
    samples: Sequence[Sent]

    def __len__(self) -> int:
        return len(self.samples)

    def sample_id(self, index: int) -> str:
        """The id that the data set has for it."""
        return self.samples[index].id

    def labels(self) -> Labels | None:
        """The labels of these samples."""
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


def packed(spec: AuditSpec, noises: Sequence[Noise]) -> tuple[AuditSpec, dict[str, bytes], str]:
    """The spec with its model path relative to the files to send, these files, and the model's folder.

    A model folder sends its weights and .json files; a model file sends the configuration next to it. The user's own Python code
    is sent if it lies in the spec's folder, with the modules there that it imports.

    Raises:
        ModelError: a file is missing, damaged or cannot be read.
        SpecError: a noise is made from files, which are not sent.
    """
    for noise in noises:
        if noise.form.files:
            what = f"is made from files ({noise.form.files[0].name}), which are not sent"
            raise SpecError(f"noise {noise.label}", what, "put everything where all machines can read it, and leave --ship out")
    path, model = model_path(spec.model, spec.base_dir), spec.model
    code = {str(file.relative_to(spec.base_dir)): file for file in _code(model.architecture or "", spec.base_dir)}
    files = {**({} if path is None else _model_files(path, model.format)), **code}
    try:
        contents = {name: file.read_bytes() for name, file in files.items()}
    except OSError as error:
        raise ModelError(str(error.filename or path), f"cannot be read ({error.strerror})", "give a file that you may read") from error
    if path is None:
        return spec, contents, str(spec.base_dir)
    sent = spec.model_copy(update={"model": model.model_copy(update={"path": _name(path)})})
    return sent, contents, os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120  as in _name


def _name(path: Path) -> str:
    """The name of a file or folder, also for ``.`` and ``..``."""
    return os.path.basename(os.path.abspath(path))  # noqa: PTH100, PTH119  resolve would follow links, whose names have other suffixes


def _model_files(path: Path, declared: str | None) -> dict[str, Path]:
    """The files of a model, by the names that they are sent under.

    Raises:
        ModelError: they are missing or damaged.
    """
    weights, inner = weights_file(path), f"{_name(path)}/" if path.is_dir() else ""
    names = [weights.name, *(file.name for file in weights.parent.glob("*.json") if inner or file.name == CONFIG)]
    names += guess_format(weights, declared).others(weights)
    return {f"{inner}{name}": weights.parent / name for name in names}


def _code(architecture: str, folder: Path) -> list[Path]:
    """The Python files of ``package.module:function`` in the spec's folder, with those there that they import."""
    top = architecture.partition(":")[0].partition(".")[0]
    if architecture.startswith(FAMILIES):
        return []
    waiting, seen, files = [top], set[str](), list[Path]()
    while waiting:
        if not (name := waiting.pop()).isidentifier() or name in seen:
            continue
        seen.add(name)
        found = [file for file in (folder / f"{name}.py", *(folder / name).rglob("*.py")) if file.is_file()]
        files += found
        waiting += [one for file in found for one in _imported(file)]
    return files


def _imported(file: Path) -> list[str]:
    """The top-level modules that a Python file imports, anywhere in its code."""
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (OSError, SyntaxError, ValueError):
        return []  # importing it gives a better message
    names = [one.name for node in nodes if isinstance(node, ast.Import) for one in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return [name.partition(".")[0] for name in names]


@contextmanager
def unpacked(spec: AuditSpec, files: Mapping[str, bytes]) -> Iterator[AuditSpec]:
    """The spec with the sent files unpacked into a temporary folder, until the model is loaded."""
    if not files:
        yield spec
        return
    with TemporaryDirectory(prefix="robaudit-") as folder:
        for name, content in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        yield spec.model_copy().located(Path(folder), spec.stem)
