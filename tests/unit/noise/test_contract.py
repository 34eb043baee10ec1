"""What every kind of noise promises: shape, type, finite values, inputs unchanged, and rows that
depend on nothing but themselves."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from robaudit.errors import RobauditError
from robaudit.noise.installed import load, registered
from robaudit.noise.noise import AdditiveNoise, Noise, Shape
from tests.unit.noise.kinds import SHAPES, examples, images, kinds, normal, some_level

ROWS = 9


@pytest.fixture(params=SHAPES, ids=str)
def shape(request: pytest.FixtureRequest) -> Shape:
    found: Shape = request.param
    return found


@pytest.fixture
def forms(shape: Shape, tmp_path: Path) -> list[tuple[str, Noise]]:
    return examples(tmp_path, shape)


def ids(count: int) -> list[str]:
    return [str(i) for i in range(count)]


def cases(
    forms: list[tuple[str, Noise]], shape: Shape, dtype: torch.dtype = torch.float32
) -> Iterator[tuple[str, Noise, Tensor, Tensor]]:
    """Images of their own for every row, and then one image for all, with z."""
    for name, form in forms:
        for count in (ROWS, 1):
            yield (
                name,
                form,
                images(count, shape).to(dtype),
                normal(ROWS, form.latent_shape(shape)).to(dtype),
            )


def test_the_kinds_of_pyproject_are_installed() -> None:
    """The entry points of the installed package name the same classes as pyproject.toml, where it
    has any at all."""
    try:
        installed = registered()
    except RobauditError:  # the installed package is older than the kinds
        pytest.skip("the installed package has no kinds of noise")
    assert {name: load(name) for name in installed} == kinds()


def test_a_kind_that_has_been_used_can_be_copied_and_pickled(
    forms: list[tuple[str, Noise]], shape: Shape
) -> None:
    for name, form, x, z in cases(forms, shape):
        first = form.noisy(x, z, some_level(form), ids=ids(len(x)))
        for copy in (pickle.loads(pickle.dumps(form)), form.model_copy()):
            assert copy == form, name
            assert torch.equal(copy.noisy(x, z, some_level(form), ids=ids(len(x))), first), name


def test_noise_at_the_shrunk_level_has_the_shrunk_amplitude(
    forms: list[tuple[str, Noise]], shape: Shape
) -> None:
    for name, form in forms:
        if isinstance(form, AdditiveNoise):
            level = some_level(form)
            shrunk = form.amplitude(form.shrunk(level, 1 / 64), shape)
            assert shrunk == pytest.approx(form.amplitude(level, shape) / 64), name


def test_shape_type_and_range(forms: list[tuple[str, Noise]], shape: Shape) -> None:
    for name, form, x, z in cases(forms, shape):
        form.check(shape, [])
        for dtype in (torch.float32, torch.float64):
            for level in (form.least, some_level(form), form.most):
                y = form.noisy(x.to(dtype), z.to(dtype), level, ids=ids(len(x)))
                assert y.shape == (ROWS, *shape), name
                assert y.dtype is dtype, name
                assert y.isfinite().all(), (name, level)
                if form.quantises:
                    assert y.min() >= 0, name
                    assert y.max() <= 1, name


def test_draws_are_within_the_ball_and_reach_its_wall(
    forms: list[tuple[str, Noise]], shape: Shape
) -> None:
    """However far out z is; a kind with a ball has a limit."""
    balls = 0
    for name, form, x, z in cases(forms, shape, torch.float64):
        ball = form.ball(some_level(form))
        assert ball is None or form.bounded, name
        if ball is None:
            continue
        balls += 1
        for far, least in ((1.0, 0.0), (1e3, 1 - 1e-3)):
            moved = (form.noisy(x, z * far, some_level(form), ids=ids(len(x))) - x).flatten(1)
            length = moved.abs().amax(1) if ball.norm == "linf" else moved.norm(dim=1)
            assert (length <= ball.radius * (1 + 1e-9)).all(), name
            if ball.norm == "linf":
                assert (length >= ball.radius * least).all(), name
    assert balls == 4  # uniform: two norms, each with images of their own and with one for all


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_inputs_are_not_changed(
    forms: list[tuple[str, Noise]], shape: Shape, dtype: torch.dtype
) -> None:
    for name, form, x, z in cases(forms, shape, dtype):
        x0 = x.clone()
        z0 = z.clone()
        first = form.noisy(x, z, some_level(form), ids=ids(len(x)))
        with torch.inference_mode():
            second = form.noisy(x, z, some_level(form), ids=ids(len(x)))
        assert torch.equal(first, second), name
        assert torch.equal(x, x0), name
        assert torch.equal(z, z0), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_row_has_the_same_bits_in_any_batch(
    forms: list[tuple[str, Noise]], shape: Shape, dtype: torch.dtype
) -> None:
    """Alone, in fours, in reverse, in slices that begin anywhere, and with its image written out
    for every row."""
    for name, form, x, z in cases(forms, shape, dtype):
        names = ids(len(x))
        level = some_level(form)
        shared = len(x) == 1
        whole = form.noisy(x, z, level, ids=names)
        for size in (1, 4):
            for start in range(0, ROWS, size):
                rows = slice(start, start + size)
                own, known = (x, names) if shared else (x[rows], names[rows])
                own = own.clone() if size == 1 else own
                assert torch.equal(form.noisy(own, z[rows], level, ids=known), whole[rows]), (
                    name,
                    size,
                    start,
                )
        backwards = form.noisy(x.flip(0), z.flip(0), level, ids=names[::-1])
        assert torch.equal(backwards.flip(0), whole), name
        if shared:
            assert torch.equal(
                form.noisy(x.expand(ROWS, *shape).clone(), z, level, ids=names * ROWS), whole
            ), name


def test_large_batches(tmp_path: Path) -> None:
    """128 rows of 28 x 28 pixels, which is more than one piece for kinds that work in pieces."""
    shape = (1, 28, 28)
    for name, form in examples(tmp_path, shape):
        x = images(128, shape)
        z = normal(128, form.latent_shape(shape))
        whole = form.noisy(x, z, some_level(form), ids=ids(128))
        for size in (7, 100):
            for start in range(0, 128, size):
                rows = slice(start, start + size)
                assert torch.equal(
                    form.noisy(x[rows], z[rows], some_level(form), ids=ids(128)[rows]), whole[rows]
                ), (name, size)


def test_differentiable_kinds_have_the_right_gradients(
    forms: list[tuple[str, Noise]], shape: Shape
) -> None:
    for name, form, x, z in cases(forms, shape):
        if not form.differentiable:
            continue
        few = z[:2].double().requires_grad_()
        xs = x[:2].double()
        direction = normal(2, tuple(z.shape[1:]), 9).double()
        step = 1e-5
        level = 0.5
        weights = normal(2, shape, 10).double()

        def value(
            at: Tensor,
            form: Noise = form,
            xs: Tensor = xs,
            weights: Tensor = weights,
            level: float = level,
        ) -> Tensor:
            return (form.noisy(xs, at, level, ids=ids(len(xs))) * weights).sum()

        (gradient,) = torch.autograd.grad(value(few), few)
        slope = float(
            (value(few.detach() + step * direction) - value(few.detach() - step * direction))
            / (2 * step)
        )
        assert float((gradient * direction).sum()) == pytest.approx(slope, rel=1e-5, abs=1e-7), name
        assert torch.equal(
            form.noisy(xs, few, level, ids=ids(len(xs))),
            form.noisy(xs, few.detach(), level, ids=ids(len(xs))),
        ), name


def test_no_z_is_too_far_or_too_near(forms: list[tuple[str, Noise]], shape: Shape) -> None:
    """Searches for rare failures go where no draw does: finite values at 40 standard deviations,
    and at none."""
    for name, form, x, z in cases(forms, shape):
        for far in (
            40 * z.sign(),
            torch.full_like(z, 40.0),
            torch.full_like(z, -40.0),
            torch.zeros_like(z),
        ):
            y = form.noisy(x, far, some_level(form), ids=ids(len(x)))
            assert y.isfinite().all(), name
        if form.differentiable and isinstance(form, AdditiveNoise):
            assert torch.allclose(y, x.expand_as(y), atol=1e-6), name  # symmetric: no noise at 0


def test_gram_is_symmetric_positive_and_a_row_by_itself(
    forms: list[tuple[str, Noise]], shape: Shape
) -> None:
    pixels = math.prod(shape)
    x = images(6, shape)
    u = normal(6, (4, pixels))
    for name, form in forms:
        if not isinstance(form, AdditiveNoise):
            continue
        found = form.gram(u, x)
        assert found.shape == (6, 4, 4), name
        assert found.dtype is torch.float64, name
        assert torch.allclose(found, found.transpose(1, 2), rtol=1e-9), name
        assert torch.linalg.eigvalsh(found).min() > -1e-9 * float(found.abs().max()), name
        assert form.amplitude(form.most, shape) > 0, name
        for i in range(6):
            assert torch.equal(
                form.gram(u[i : i + 1].clone(), x[i : i + 1].clone())[0], found[i]
            ), (name, i)
        assert form.gram(u[:0], x[:0]).shape == (0, 4, 4), name
