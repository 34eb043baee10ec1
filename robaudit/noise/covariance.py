"""Gaussian noise of any covariance of the form F F^T + diag(d)^2, from a file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from pathlib import Path

import torch
from pydantic import Field
from torch import Tensor

from robaudit.errors import SpecError
from robaudit.noise.arrays import Placed, read_npz
from robaudit.noise.noise import File, Shape, SigmaNoise
from robaudit.numerics.rowwise import gram, product


class CovarianceGaussian(SigmaNoise):
    """x + sigma (F w + d v): normal noise of covariance sigma^2 (F F^T + diag(d)^2), with
    independent standard normal w and v.

    The level scales the noise; at 1 its covariance is the file's. The .npz file has

    - ``factor``: F, with a column for each of a few directions, (C H W, rank), pixels in the order
      of (C, H, W);
    - ``diagonal``, optional: the standard deviations d >= 0 of the independent part, (C H W,).

    Source: factor analysis; Tipping and Bishop (1999), JRSS B 61, for F and d from measured
        residuals.
    """

    summary = "x + sigma (F w + d v), of covariance F F^T + diag(d)^2 from a file"
    prefer = "noise whose covariance has been measured: banding, fixed patterns, lighting"
    source = "Tipping and Bishop 1999"

    file: File = Field(
        description="an .npz file with factor, (C H W, rank), and perhaps diagonal, (C H W,)"
    )

    @property
    def files(self) -> tuple[Path, ...]:
        """The file of the covariance."""
        return (self.file,)

    @cached_property
    def _arrays(self) -> dict[str, Placed]:
        """The arrays of the file by name: ``factor``, and ``diagonal`` if there is one."""
        arrays = read_npz(self.file, "file", "factor", "diagonal")
        if "factor" not in arrays:
            raise SpecError(
                "file",
                f"{self.file} has no array factor",
                "write it with numpy.savez(path, factor=..., diagonal=...)",
            )
        return {name: Placed(array) for name, array in arrays.items()}

    @property
    def _factor(self) -> Placed:
        """F, (pixels, rank)."""
        return self._arrays["factor"]

    @property
    def _diagonal(self) -> Placed | None:
        """The deviations d, (pixels,)."""
        return self._arrays.get("diagonal")

    def check(self, shape: Shape, levels: Sequence[float]) -> None:
        """Check that the arrays fit the images.

        Raises:
            SpecError: they do not, or the file is missing or has no such arrays.
        """
        for name, placed in self._arrays.items():
            array = placed.values
            dimensions = 2 if name == "factor" else 1
            wanted = "(C H W, rank)" if name == "factor" else "(C H W,)"
            has_pixels = array.shape[:1] == (prod(shape),)
            # A factor of rank 0 has no numbers.
            if not has_pixels or array.ndim != dimensions or not array.numel():
                what = (
                    f"{name} in {self.file} has the shape {tuple(array.shape)}, and the "
                    f"images are {shape}"
                )
                raise SpecError("file", what, f"save it as {wanted}, with C H W = {prod(shape)}")
        if self._diagonal and (self._diagonal.values < 0).any():
            raise SpecError(
                "file",
                f"diagonal in {self.file} has negative numbers",
                "it holds standard deviations",
            )

    def latent_shape(self, shape: Shape) -> tuple[int, ...]:
        """One variable for each direction, then one for each value if there is a diagonal."""
        directions = self._factor.values.shape[1]
        independent = prod(shape) if self._diagonal else 0
        return (directions + independent,)

    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str]) -> Tensor:
        """x + sigma (F w + d v), z = (w, v)."""
        factor = self._factor.like(x)
        rank = factor.shape[1]
        flat = product(factor, z[:, :rank].unsqueeze(-1)).squeeze(-1)  # F w, (n, pixels)
        if self._diagonal:
            flat = flat + z[:, rank:] * self._diagonal.like(x)
        noise: Tensor = flat.mul(level).unflatten(1, x.shape[1:])
        return noise + x

    def gram(self, gradients: Tensor, x: Tensor) -> Tensor:
        """(U F) (U F)^T + (U d) (U d)^T."""
        # On the CPU one image at a time, which bounds the float64 copies.
        step = 1 if gradients.device.type == "cpu" else max(1, len(gradients))
        grams = []
        for part in gradients.split(step):
            u = part.double()
            factor = self._factor.like(u).expand(len(u), -1, -1)
            total = gram(product(u, factor))
            if self._diagonal:
                total = total + gram(u * self._diagonal.like(u))
            grams.append(total)
        return torch.cat(grams)
