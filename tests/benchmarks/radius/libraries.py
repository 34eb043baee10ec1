"""Attacks of two libraries, foolbox and adv-lib, which are installed for this comparison alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from torch import Tensor, nn

Norm = Literal["l2", "linf"]
NORMS: tuple[Norm, ...] = ("l2", "linf")


@dataclass(frozen=True, slots=True)
class Foreign:
    """An attack of a library with its options.

    Attributes:
        library: its package.
        name: of the attack there.
        options: those that are not the library's own defaults.
    """

    library: Literal["foolbox", "adv_lib"]
    name: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """With all that changes its values."""
        return " ".join([f"{self.library} {self.name}", *(f"{key}={value}" for key, value in self.options.items())])

    def run(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The points that it found (n, channels, height, width)."""
        run = _foolbox if self.library == "foolbox" else _adv_lib
        return run(self.name, self.options, model, x, y)


def available(folder: Path | None) -> dict[str, str]:
    """The libraries' versions; a folder with them is searched after everything else.

    Raises:
        ImportError: if one is absent.
    """
    find(folder)
    for package in ("foolbox", "adv_lib.attacks"):
        import_module(package)
    return {"foolbox": version("foolbox"), "adv-lib": version("adv-lib")}


def find(folder: Path | None) -> None:
    """Search a folder with the libraries after everything else."""
    if folder is not None and str(folder) not in sys.path:
        sys.path.append(str(folder))
    sys.modules.setdefault("visdom", _no_plots())


def _no_plots() -> ModuleType:
    """In the place of the server for plots that adv-lib imports and does not use."""
    module = ModuleType("visdom")
    module.Visdom = object  # type: ignore[attr-defined]
    return module


def _foolbox(name: str, options: dict[str, Any], model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    foolbox = import_module("foolbox")
    attack = getattr(foolbox.attacks, name)(**options)
    found: Tensor = attack(foolbox.PyTorchModel(model, bounds=(0, 1), device=x.device), x, y, epsilons=None)[1]
    return found


def _adv_lib(name: str, options: dict[str, Any], model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    attack: Callable[..., Tensor] = getattr(import_module("adv_lib.attacks"), name)
    return attack(model, x.clone(), y, **options)


def attacks(norm: Norm, budgets: Sequence[int]) -> list[Foreign]:
    """The libraries' attacks for a norm that go without a radius.

    Args:
        norm: of the perturbation.
        budgets: steps of those whose steps are one gradient each, ascending; beyond 300, others have more steps, too.
    """
    order = 2 if norm == "l2" else float("inf")
    found: list[Foreign] = []
    for steps in budgets:
        found.append(Foreign("adv_lib", "fmn", {"norm": order, "steps": steps}))
        found.append(Foreign("foolbox", "L2FMNAttack" if norm == "l2" else "LInfFMNAttack", {"steps": steps}))
        if norm == "l2":
            found.append(Foreign("adv_lib", "ddn", {"steps": steps, "levels": None}))
            found.append(Foreign("foolbox", "DDNAttack", {"steps": steps}))
            found.append(Foreign("adv_lib", "alma", {"distance": "l2", "num_steps": steps}))
            found.append(Foreign("adv_lib", "pdgd", {"num_steps": steps}))
        if steps >= 300:
            found.append(Foreign("adv_lib", "pdpgd", {"norm": order, "num_steps": steps}))
    found.append(Foreign("adv_lib", "fab", {"norm": order, "n_iter": 30, "targeted_restarts": True}))
    found.append(Foreign("adv_lib", "df", {"norm": order}))
    found.append(Foreign("foolbox", "L2DeepFoolAttack" if norm == "l2" else "LinfDeepFoolAttack"))
    if budgets[-1] <= 300:
        return found
    found.append(Foreign("adv_lib", "fab", {"norm": order, "n_iter": 30}))
    found.append(Foreign("adv_lib", "fab", {"norm": order, "n_iter": 100, "targeted_restarts": True}))
    found.append(Foreign("adv_lib", "tr", {"p": order, "iter": 100, "adaptive": True}))
    if norm == "l2":
        found.append(Foreign("adv_lib", "sdf"))
        found.append(Foreign("foolbox", "L2CarliniWagnerAttack", {"binary_search_steps": 5, "steps": 200}))
    return found
