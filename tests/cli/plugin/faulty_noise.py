"""Kinds of noise that break the contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from robaudit import AdditiveNoise, LevelName, Noise
from robaudit.noise.noise import Shape

FAULTS: Mapping[str, tuple[str, Callable[..., Any], str]] = {
    "NaN": (
        "noisy",
        lambda x, z: x + z * float("nan"),
        "noisy() returned values that are not finite",
    ),
    "shape": ("noisy", lambda x, z: (x + z)[..., :-1], "noisy() returned a Tensor of shape ("),
    "an exception": (
        "noisy",
        lambda x, z: x / dict[int, float]()[0],
        "raised KeyError: 0 (faulty_noise.py, line ",
    ),
    "check": (
        "check",
        lambda: 1 / 0,
        "raised ZeroDivisionError: division by zero (faulty_noise.py, line ",
    ),
    "latent": ("latent_shape", lambda: "x", "raised TypeError: "),
    "gram": (
        "gram",
        lambda u: u.sum(),
        "gram() returned a Tensor of shape (), not a torch.float64 tensor of shape",
    ),
    "amplitude": (
        "amplitude",
        lambda: 1 / 0,
        "raised ZeroDivisionError: division by zero (faulty_noise.py, line ",
    ),
}


class Faulty(AdditiveNoise):
    """x + sigma z, with one fault."""

    level_name = LevelName.SIGMA
    least = 1e-6
    most = 1.0
    summary = "faulty"
    prefer = "tests"
    source = "here"

    fault: str

    def _does(self, what: str, *values: Any) -> Any:
        place, action, _ = FAULTS[self.fault]
        return action(*values) if place == what else NotImplemented

    def check(self, shape: Shape, levels: Sequence[float]) -> None:
        self._does("check")

    def latent_shape(self, shape: Shape) -> Any:
        found = self._does("latent_shape")
        return shape if found is NotImplemented else found

    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str]) -> Any:
        found = self._does("noisy", x, z)
        return x + level * z if found is NotImplemented else found

    def amplitude(self, level: float, shape: Shape) -> Any:
        found = self._does("amplitude")
        return level if found is NotImplemented else found

    def gram(self, gradients: Tensor, x: Tensor) -> Any:
        found = self._does("gram", gradients)
        return (
            (gradients @ gradients.transpose(1, 2)).double() if found is NotImplemented else found
        )


class Undeclared(Noise):
    """A level without a name."""

    least = 1e-6
    most = 1.0
    summary = "undeclared"
    prefer = "tests"
    source = "here"

    def noisy(self, x: Tensor, z: Tensor, level: float, *, ids: Sequence[str]) -> Tensor:
        return x + level * z
