"""Clean and noisy images of the listed samples, read from the run's data set."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from robaudit.auditing.claim import noises_of, spec_of, without_download
from robaudit.auditing.environment import image_digest
from robaudit.auditing.prepare import with_files
from robaudit.datasets.dataset import Dataset
from robaudit.datasets.open_dataset import open_dataset
from robaudit.errors import RobauditError, SampleError
from robaudit.files import write_atomically
from robaudit.levels import NoiseLevel
from robaudit.noise.noise import shape_of
from robaudit.noise.process import NoiseProcess
from robaudit.runs.folder import RunFolder
from robaudit.runs.run import Run
from robaudit.settings import TRUST
from robaudit.spec.model import AuditSpec
from robaudit.stats.flags import Flag, Flagged
from robaudit.text import class_name

# pixels: the least height of an image in a file, and the gap between two
_SMALLEST = 160
_GAP = 8
# characters of a file's name; file systems take 255 bytes
_LONGEST_FILE = 120


class ImageSource(NamedTuple):
    """Where the images of a run are read.

    Attributes:
        spec: a spec that the user named, for its data set.
        trust: allow Python code that this spec names.
    """

    spec: AuditSpec
    trust: bool


class RunImages:
    """The images of a run, clean and with the noise of its first draw.

    A run folder may come from a stranger, and pages that show images are passed on. So an image is
    shown only if its pixels have the digest that the run recorded: a folder cannot name other
    people's files and have them shown.

    Args:
        run: the run, whose data set is reopened.
        ids: the samples that will be needed.
        source: the data set; None: the one in memory, or the one of the run's own spec, without its
            code.

    Raises:
        RobauditError: the data set has moved or lacks one of the samples, or the run has no
            digests.
    """

    def __init__(self, run: Run, ids: Iterable[str], source: ImageSource | None = None) -> None:
        own = spec_of(run)
        self._digests = RunFolder(run.path).image_digests(run.info)
        if not self._digests:
            raise RobauditError(
                f"{run.path}/state.db",
                "is missing, and images are shown only if they have the digests in it",
            )
        # The folder may come from a stranger; the spec that the user names does not.
        if source is None and own.dataset.kind == "python":
            what = "names Python code as its data set, and code that a run folder names never runs"
            raise RobauditError(
                str(run.path),
                what,
                "name its spec, if you trust it: --data SPEC.yaml " + TRUST,
            )
        if source is None and run.data is not None:
            self._dataset = run.data
        else:
            self._dataset = _opened(source or ImageSource(own, trust=False))
        wanted = dict.fromkeys(ids)
        known = ((self._dataset.sample_id(i), i) for i in range(len(self._dataset)))
        self._index = {sample_id: i for sample_id, i in known if sample_id in wanted}
        for sample_id in wanted:
            if sample_id not in self._index:
                raise RobauditError(
                    self._dataset.where,
                    f"no longer has a sample {sample_id!r}",
                    "restore the data set that the run was made on",
                )
        spec, trust = source or ImageSource(own, trust=False)
        data = without_download(spec.dataset)
        noises = with_files(noises_of(run, own), data, spec.base_dir, trust=trust)
        self._noises: dict[str | None, NoiseProcess] = {
            noise.label: noise.seeded(own.run.seed, torch.device("cpu")) for noise in noises
        }

    def clean(self, sample_id: str) -> Tensor:
        """The pixels (channels, height, width) in [0, 1].

        Raises:
            RobauditError: the sample cannot be read, or differs from the run's.
        """
        try:
            sample = self._dataset[self._index[sample_id]]
        except SampleError as error:
            raise RobauditError(error.where, error.what, error.remedy) from error
        if self._digests.get(sample_id) != image_digest(sample):
            what = "holds other images than the run, by the digests in its folder"
            raise RobauditError(
                self._dataset.where, what, "name the spec of the right data: --data SPEC.yaml"
            )
        return sample.pixels

    def noisy(self, sample_id: str, clean: Tensor, at: NoiseLevel) -> Tensor:
        """Its first noisy copy at this level, clipped only if the noise is; the draw is the CPU's,
        also after a run on another device."""
        return first_copy(self._noises[at.noise], sample_id, clean, at)


def _opened(source: ImageSource) -> Dataset:
    """The data set of a spec; nothing is downloaded to show images."""
    spec = source.spec
    return open_dataset(without_download(spec.dataset), base_dir=spec.base_dir, trust=source.trust)


def first_copy(source: NoiseProcess, sample_id: str, clean: Tensor, at: NoiseLevel) -> Tensor:
    """The first noisy copy of an image (channels, height, width), as the estimators see it."""
    z = next(source.blocks(sample_id, 1, shape_of(clean)))
    copy = source.noisy(clean[None], z.to(clean.dtype), at.number, ids=[sample_id])[0]
    return copy.clamp(0.0, 1.0) if source.noise.clip else copy


def write_gallery(
    run: Run, flagged: Sequence[Flagged], folder: Path, source: ImageSource | None = None
) -> int:
    """Write a PNG for each listed sample: the clean image beside its first noisy copy; returns how
    many.

    The files of an estimator and noise level are in a folder of their own, numbered in the order of
    the list.

    Raises:
        RobauditError: the data set has moved, or the folder cannot be written.
    """
    samples = chain.from_iterable(group.samples for group in flagged)
    images = RunImages(run, (sample.id for sample in samples), source)
    written = 0
    for group in flagged:
        target = folder / plain_name(f"{group.key.estimator}-{_level(group.key.at)}")
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RobauditError(
                str(target), f"cannot be made: {error.strerror or error}", "choose another --images"
            ) from error
        for rank, sample in enumerate(group.samples, start=1):
            clean = images.clean(sample.id)
            noisy = clean
            if group.key.at.level is not None:
                noisy = images.noisy(sample.id, clean, group.key.at)
            picture = side_by_side(clean, noisy)
            write_atomically(target / _name(rank, sample, run.class_names), picture)
            written += 1
    return written


def side_by_side(clean: Tensor, noisy: Tensor) -> bytes:
    """A PNG of two images (channels, height, width), a white gap between them, small ones enlarged
    pixel by pixel."""
    # a whole factor, so that each pixel stays a square
    factor = max(1, math.ceil(_SMALLEST / clean.shape[1]))
    left = as_array(clean).repeat(factor, axis=0).repeat(factor, axis=1)
    right = as_array(noisy).repeat(factor, axis=0).repeat(factor, axis=1)
    gap = np.full((left.shape[0], _GAP, 3), 255, dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(np.concatenate([left, gap, right], axis=1)).save(buffer, format="PNG")
    return buffer.getvalue()


def as_array(image: Tensor) -> NDArray[np.uint8]:
    """An image (channels, height, width) as bytes (height, width, 3); values outside [0, 1] are cut
    off."""
    pixels = (image.clamp(0, 1) * 255).round().to(torch.uint8)
    # grey is shown as grey; of more than three channels, the first three
    rgb = pixels.expand(3, -1, -1) if len(pixels) == 1 else pixels[:3]
    array: NDArray[np.uint8] = rgb.permute(1, 2, 0).contiguous().numpy()
    return array


def _name(rank: int, sample: Flag, names: Sequence[str] | None) -> str:
    """The name of a file: the place in the list, the sample, and the classes it flips between."""
    flip = f"-to-{class_name(sample.flips_to, names)}" if sample.flips_to is not None else ""
    text = f"{rank:03d}-{sample.id}-{class_name(sample.predicted, names)}{flip}"
    return plain_name(text)[:_LONGEST_FILE] + ".png"


def _level(at: NoiseLevel) -> str:
    """The noise level in the name of a folder."""
    if at.level is None:
        return at.text
    number = f"{at.level:.6g}"
    return number if at.usual else f"{at.noise}-{at.name}-{number}"


def plain_name(text: str) -> str:
    """Letters, digits, dots, dashes and underscores only, so that no name leads out of the
    folder."""
    return re.sub(r"[^\w.-]+", "_", text).lstrip(".")
