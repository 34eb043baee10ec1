"""Installed kinds of noise by name, through the entry-point group ``robaudit.noise``, and the noises of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from robaudit.errors import NoiseError, SpecError
from robaudit.files import file_sha256
from robaudit.levels import GAUSSIAN, NoiseLevel
from robaudit.noise.base import BASE_DIR, AdditiveNoise, NoiseKind, Shape
from robaudit.noise.draws import DrawPool, NormalDraws
from robaudit.noise.gaussian import Gaussian
from robaudit.plugins import NOISES, BrokenContractError, blaming, installed, is_ours, load_class, shown
from robaudit.spec.errors import explain
from robaudit.spec.model import NoiseSpec
from robaudit.spec.origin import Location, Origin

GROUP = NOISES


@dataclass(frozen=True, slots=True)
class Noise:
    """A noise of a run: a kind with its options, its label and its levels.

    Attributes:
        label: in the results.
        kind: the plugin's registered name, which seeds the draws.
        form: the map from normal variables to pixels.
        levels: in the spec's order.
    """

    label: str
    kind: str
    form: NoiseKind
    levels: tuple[NoiseLevel, ...]

    @property
    def digests(self) -> dict[str, str]:
        """sha256 of the files behind the noise, by name."""
        return {path.name: file_sha256(path) or "" for path in self.form.files}

    def check(self, shape: Shape, labels: Iterable[tuple[str, int]]) -> None:
        """Check the kind against the images and their labels.

        Args:
            shape: channels, height, width of the images.
            labels: sample ids and labels (-1: none), if known; read only by kinds with labels of their own.

        Raises:
            SpecError, DataError: they do not fit.
            NoiseError: a plugin raises an exception.
        """
        form = self.form
        with blaming(f"noise {self.label}", type(form), NoiseError):
            form.check(shape, [at.number for at in self.levels])
            form.check_labels(labels)

    def source(self, seed: int, device: torch.device, dtype: torch.dtype = torch.float32, *, stream: str = "") -> NoiseSource:
        """The noise with its draws; see :class:`~robaudit.noise.draws.NormalDraws` for the arguments."""
        return NoiseSource(self.form, NormalDraws(self.kind, seed, device, dtype, stream=stream))


@dataclass(frozen=True, slots=True)
class NoiseSource:
    """A kind of noise with its normal variables."""

    form: NoiseKind
    draws: NormalDraws

    def blocks(self, sample_id: str, draws: int, shape: Shape, start: int = 0) -> Iterator[Tensor]:
        """Draws z of a sample from number ``start`` on, as blocks (n, *latent_shape); ``shape``: of the image."""
        return self.draws.blocks(sample_id, draws, self.form.latent_shape(shape), start)

    def chosen(self, wanted: Sequence[tuple[str, NDArray[np.int64]]], shape: Shape) -> Iterator[tuple[int, Tensor]]:
        """Chosen draws of :meth:`blocks`, of several samples: see :meth:`NormalDraws.chosen <robaudit.noise.draws.NormalDraws.chosen>`."""
        return self.draws.chosen(wanted, self.form.latent_shape(shape))

    def pool(self, ids: Sequence[str], shape: Shape, most_bytes: int) -> DrawPool | None:
        """The draws of :meth:`blocks` for many samples, cached on a CUDA device; None on the CPU, or if the kind takes a single level."""
        usable = self.form.by_row and self.draws.device.type != "cpu"
        return self.draws.pool(ids, self.form.latent_shape(shape), most_bytes) if usable else None

    def frames(self, sample_id: str, draws: int, shape: Shape, start: int = 0) -> Iterator[Tensor]:
        """The same, with draws coupled so that their mean varies less."""
        return self.draws.frames(sample_id, draws, self.form.latent_shape(shape), start)

    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str], out: Tensor | None = None) -> Tensor:
        """:meth:`NoiseKind.noisy <robaudit.noise.base.NoiseKind.noisy>` of the kind; the result of a plugin is checked.

        Raises:
            NoiseError: it raises an exception, or its pixels are of another shape or type, or not finite.
        """
        if is_ours(type(self.form)):
            return self.form.noisy(x, z, level, ids=ids, out=out)
        with self._blaming():
            pixels = self.form.noisy(x.clone(), z.clone(), level, ids=ids)  # a kind may work in place
            return _valid(pixels, "noisy", (len(z), *x.shape[1:]), x.dtype)

    def derivative(self, z: Tensor, level: float) -> Tensor | None:
        """:meth:`NoiseKind.derivative <robaudit.noise.base.NoiseKind.derivative>` of the kind; an exception names the plugin."""
        with self._blaming():
            return self.form.derivative(z, level)

    def amplitude(self, level: float, shape: Shape) -> float:
        """a(level) of additive noise; an exception names the plugin."""
        with self._blaming():
            return self.additive.amplitude(level, shape)

    def gram(self, gradients: Tensor, x: Tensor) -> Tensor:
        """:meth:`AdditiveNoise.gram <robaudit.noise.base.AdditiveNoise.gram>` of additive noise, checked like :meth:`noisy`."""
        with self._blaming():
            found = self.additive.gram(gradients, x)
            return found if is_ours(type(self.form)) else _valid(found, "gram", (*gradients.shape[:2], gradients.shape[1]), torch.float64)

    def _blaming(self) -> AbstractContextManager[None]:
        return blaming(f"noise {self.form.name}", type(self.form), NoiseError)

    @property
    def additive(self) -> AdditiveNoise:
        """The kind, for estimators that use its covariance.

        Raises:
            ValueError: it has no covariance; estimators that need one declare it.
        """
        if not isinstance(self.form, AdditiveNoise):
            raise ValueError("the noise has no known covariance; declare Need.COVARIANCE")  # noqa: TRY004  a broken contract, not a type
        return self.form


def _valid(found: Tensor, method: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Check what a method returned.

    Raises:
        BrokenContractError: it is not a finite tensor of this shape and type.
    """
    if not isinstance(found, Tensor) or found.shape != shape or found.dtype != dtype:
        raise BrokenContractError(f"{method}() returned {shown(found)}, not a {dtype} tensor of shape {shape}")
    if not found.isfinite().all():
        raise BrokenContractError(f"{method}() returned values that are not finite")
    return found


def gaussian_source(seed: int, device: torch.device, dtype: torch.dtype = torch.float32, *, stream: str = "") -> NoiseSource:
    """Isotropic Gaussian noise, the default of a run."""
    return NoiseSource(Gaussian(), NormalDraws(GAUSSIAN, seed, device, dtype, stream=stream))


def registered() -> dict[str, EntryPoint]:
    """Entry points of the installed kinds of noise by name, in alphabetical order; nothing is imported.

    Raises:
        RobauditError: two packages register the same name, or none is registered at all.
    """
    return installed(GROUP, "noise kind")


def load(name: str, where: str = "noise") -> type[NoiseKind]:
    """The class registered under a name.

    Raises:
        SpecError: unknown name, with a did-you-mean.
        RobauditError: the plugin cannot be imported, is not a NoiseKind, or lacks a required declaration.
    """
    return load_class(GROUP, "noise kind", name, NoiseKind, where)  # type: ignore[type-abstract]


def build(specs: Sequence[NoiseSpec], base_dir: Path, origin: Origin | None = None) -> tuple[Noise, ...]:
    """The noises of a run, with their options and levels checked.

    Args:
        specs: the spec's noises.
        base_dir: the folder that paths among their options are relative to.
        origin: location of the spec's parts in a file, for messages; None: there is no file.

    Raises:
        SpecError: unknown kind or option, bad value, or a level out of range.
    """
    if origin is None or not origin.where:
        origin = Origin(moved={} if len(specs) > 1 else {("noise", 0): ("noise",)})
    return tuple(_build(spec, base_dir, ("noise", i), origin) for i, spec in enumerate(specs))


def _build(spec: NoiseSpec, base_dir: Path, place: Location, origin: Origin) -> Noise:
    def where(key: str) -> str:
        return origin.place((*place, key))

    cls = load(spec.kind, where("kind"))
    if spec.level_name != cls.level_name:
        what = f"the level of {spec.kind} is called {cls.level_name}, not {spec.level_name}"
        raise SpecError(where(spec.level_name), what, f"write {cls.level_name}: {', '.join(f'{level:g}' for level in spec.levels)}")
    try:
        with blaming(f"noise {spec.label}", cls, NoiseError, (ValidationError,)):
            form = cls.model_validate({**spec.options, "name": spec.label, "clip": spec.clip}, context={BASE_DIR: base_dir})
    except ValidationError as error:
        raise explain(error, origin, place) from error
    if spec.clip and cls.quantises:
        raise SpecError(where("clip"), f"{spec.kind} already clips to [0, 1]", "leave clip out")
    for level in spec.levels:
        if not cls.least <= level <= cls.most or (cls.whole and level != int(level)):
            kind = "a whole number" if cls.whole else "one"
            raise SpecError(
                where(spec.level_name),
                f"{level:g} is not a level of {spec.kind}",
                f"give {kind} from {cls.least:g} to {cls.most:g}",
            )
    return Noise(spec.label, spec.kind, form, spec.at)
