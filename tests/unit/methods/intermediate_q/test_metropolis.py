"""Metropolis moves keep the density they should, whose moments are known, and find the maximum of
what they climb."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from robaudit.methods.intermediate_q.metropolis import Walk, metropolis
from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.rowwise import total


def stream(
    rows: Sequence[int], shape: tuple[int, ...], seed: int, dtype: torch.dtype
) -> Callable[[], Tensor]:
    """Normal variables of some rows, the same whatever rows there are beside."""
    generators = [torch.Generator().manual_seed(seed * 997 + row) for row in rows]

    def draw() -> Tensor:
        return torch.stack(
            [torch.randn(shape, generator=generator) for generator in generators]
        ).to(dtype)

    return draw


def quick(rows: int, shape: tuple[int, ...], seed: int) -> Callable[[], Tensor]:
    """The same without a generator for each row."""
    generator = torch.Generator().manual_seed(seed)
    return lambda: torch.randn(rows, *shape, generator=generator, dtype=torch.float64)


def even(normals: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Uniform numbers."""
    return lambda: normal_cdf(normals().double())


def tilted(slope: float) -> Callable[[Tensor, Tensor], Tensor]:
    """log l = slope z_1: l^t N(0, I) is N((slope t, 0, ...), I)."""
    return lambda _, z: slope * z.flatten(1)[:, 0].double()


def test_keeps_a_normal_density() -> None:
    """Chains that begin in N(t, 1) x N(0, 1)^2 stay there: means and variances within four standard
    errors of 8,000 chains."""
    rows = 8000
    t = 1.5
    z = torch.randn(rows, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    z[:, 0] += t
    values = tilted(1.0)
    walk = Walk.at(values, z, rows)
    walk.angle = torch.tensor([0.9], dtype=torch.float64)
    metropolis(values, walk, t, 30, quick(rows, (3,), 2), even(quick(rows, (), 3)))
    assert not torch.equal(walk.z, z)
    for column, mean in enumerate((t, 0.0, 0.0)):
        assert abs(float(walk.z[:, column].mean()) - mean) < 4 / math.sqrt(rows)
        assert abs(float(walk.z[:, column].var()) - 1) < 4 * math.sqrt(2 / rows)


def test_reaches_the_density_from_anywhere() -> None:
    """A flip: l is .9 for z_1 < 0 and .2 elsewhere; P[z_1 < 0] under l^t is .9^t / (.9^t +
    .2^t)."""
    rows = 4000
    t = 1.0

    def values(_: Tensor, z: Tensor) -> Tensor:
        return torch.where(z[:, 0] < 0, 0.9, 0.2).double().log()

    z = torch.randn(rows, 2, generator=torch.Generator().manual_seed(4), dtype=torch.float64).abs()
    walk = Walk.at(values, z, 4)
    metropolis(values, walk, t, 40, quick(rows, (2,), 5), even(quick(rows, (), 6)))
    share = 0.9 / 1.1
    assert abs(float((walk.z[:, 0] < 0).double().mean()) - share) < 4 * math.sqrt(
        share * (1 - share) / rows
    )
    assert (walk.highest == values(walk.image, walk.best)).all()
    assert (walk.best[:, 0] < 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_image_has_the_same_bits_whatever_is_beside_it(dtype: torch.dtype) -> None:
    images = 6
    chains = 3
    shape = (2, 3, 4)
    heights = torch.rand(images, *shape, generator=torch.Generator().manual_seed(20)).to(dtype)

    def run(chosen: list[int]) -> list[Tensor]:
        rows = [row for image in chosen for row in range(image * chains, (image + 1) * chains)]
        normals = stream(rows, shape, 18, dtype)
        uniforms = even(stream(rows, (), 10**4, dtype))

        def values(image: Tensor, z: Tensor) -> Tensor:
            return total((heights[chosen][image] * z).flatten(1).double())

        walk = Walk.at(values, normals(), chains)
        metropolis(values, walk, 3.0, 12, normals, uniforms)
        return [
            walk.z.view(len(chosen), chains, -1),
            walk.highest.view(len(chosen), chains),
            walk.angle,
        ]

    together = run(list(range(images)))
    for chosen in ([3], [5, 0], [1, 2, 4, 5]):
        for part, whole in zip(run(chosen), together, strict=True):
            assert torch.equal(part, whole[chosen])
