"""What do the flagged samples look like, clean beside noisy?"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from pydantic import ValidationError
from torch import Tensor

from robaudit.datasets import open_dataset
from robaudit.errors import RobauditError, SampleError
from robaudit.files import write_atomically
from robaudit.noise import GaussianNoise
from robaudit.reports.names import class_name
from robaudit.runs import Run
from robaudit.spec import AuditSpec, sigma_text
from robaudit.spec_errors import explain
from robaudit.summary.flags import Flag, Flagged

_SMALLEST, _GAP = 160, 8


def write_gallery(run: Run, flagged: Sequence[Flagged], folder: Path, *, trust: bool = False) -> int:
    """Write a PNG for each listed sample: the clean image beside its first noisy copy; returns how many.

    The files of an estimator and noise level stand in a folder of their own, numbered in the order of the list.

    Raises:
        RobauditError: the data set is not where it was, or the folder cannot be written.
    """
    try:
        spec = AuditSpec.model_validate(run.info["spec"]).located(Path(run.info["spec_folder"]), run.info["name"])
    except ValidationError as error:
        raise explain(error, AuditSpec, f"{run.path}/run.json, spec") from error
    dataset = open_dataset(spec.dataset, base_dir=spec.base_dir, trust=trust)
    index = {dataset.sample_id(i): i for i in range(len(dataset))}
    noise = GaussianNoise(spec.run.seed, torch.device("cpu"))
    for sample in (sample for one in flagged for sample in (*one.samples, *one.robust)):
        if sample.id not in index:
            raise RobauditError(dataset.where, f"has no sample {sample.id!r} any more", "restore the data set the run was made on")
    written = 0
    for one in flagged:
        target = folder / _plain(f"{one.key.estimator}-{sigma_text(one.key.sigma)}")
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RobauditError(str(target), f"cannot be made: {error.strerror or error}", "choose another --images") from error
        for rank, sample in enumerate((*one.samples, *one.robust), start=1):
            try:
                clean = dataset[index[sample.id]].pixels
            except SampleError as error:
                raise RobauditError(error.where, error.what, error.remedy) from error
            z = next(noise.blocks(sample.id, 1, tuple(clean.shape)))[0]
            picture = side_by_side(clean, clean + one.key.sigma * z)
            write_atomically(target / _name(rank, sample, run.class_names), picture)
            written += 1
    return written


def side_by_side(clean: Tensor, noisy: Tensor) -> bytes:
    """A PNG of two images (channels, height, width), a white gap between them, small ones enlarged pixel by pixel."""
    height = clean.shape[1]
    factor = max(1, -(-_SMALLEST // height))
    left, right = (_as_array(image).repeat(factor, axis=0).repeat(factor, axis=1) for image in (clean, noisy))
    gap = np.full((left.shape[0], _GAP, 3), 255, dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(np.concatenate([left, gap, right], axis=1)).save(buffer, format="PNG")
    return buffer.getvalue()


def _as_array(image: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    pixels = (image.clamp(0, 1) * 255).round().to(torch.uint8)
    rgb = pixels.expand(3, -1, -1) if len(pixels) == 1 else pixels[:3]
    array: np.ndarray[tuple[int, ...], np.dtype[np.uint8]] = rgb.permute(1, 2, 0).contiguous().numpy()
    return array


def _name(rank: int, sample: Flag, names: Sequence[str] | None) -> str:
    flip = f"-to-{class_name(sample.flips_to, names)}" if sample.flips_to is not None else ""
    text = f"{rank:03d}-{sample.id}-{class_name(sample.predicted, names)}{flip}"
    return _plain(text)[:120] + ".png"


def _plain(text: str) -> str:
    """Letters, digits, dots, dashes and underscores only: nothing that leads out of a folder."""
    return re.sub(r"[^\w.-]+", "_", text).lstrip(".")
