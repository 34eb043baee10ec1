"""The audit behind error curves: a spec's model, images and run options with the noises and estimators of the curves."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from robaudit.datasets.base import first_samples
from robaudit.datasets.load import open_dataset
from robaudit.errors import DataError
from robaudit.estimators.radius_pgd import BALLS
from robaudit.estimators.radius_pgd import STEPS as RADII
from robaudit.files import expanded
from robaudit.levels import GAUSSIAN
from robaudit.models.load import guess_format
from robaudit.spec.model import AuditSpec
from robaudit.spec.pretrained.folder import weights_file
from robaudit.spec.pretrained.hub import is_hub
from robaudit.stats.curves import LINEAR, CurveKind

POINTS: Mapping[CurveKind, int] = {CurveKind.L2: BALLS, CurveKind.LINF: BALLS, CurveKind.NOISE: 50}
"""Steps of a grid without a cap. Curves under noise are long: some networks see a little through a sigma of 10."""
STEPS: Mapping[CurveKind, float] = {
    CurveKind.L2: RADII["l2"],
    CurveKind.LINF: RADII["linf"],
    CurveKind.NOISE: 0.32,
    CurveKind.LINEAR: 0.05,
}
"""The grids of the paper."""
ATTACKS = (CurveKind.L2, CurveKind.LINF)
_LOOK_AT, _ROUNDING, _DIGITS = 64, 1e-9, 12


@dataclass(frozen=True, slots=True)
class CurvePlan:
    """Which curves, and how finely.

    Attributes:
        kinds: which.
        step, cap: of each grid; a kind that is not there has the paper's step, and as many steps as :data:`POINTS`. Linear corruption
            goes to noise alone.
        steps, restarts: of the attacks.
        draws: noisy copies of each image at each level.
        clip: keep the pixels of everything within [0, 1].
    """

    kinds: Collection[CurveKind] = tuple(CurveKind)
    step: Mapping[CurveKind, float] = field(default_factory=dict)
    cap: Mapping[CurveKind, float] = field(default_factory=dict)
    steps: int = 200
    restarts: int = 5
    draws: int = 5
    clip: bool = False

    def spacing(self, kind: CurveKind) -> float:
        """The step of a grid."""
        return self.step.get(kind, STEPS[kind])

    def points(self, kind: CurveKind) -> int:
        """How many steps it has."""
        end = 1.0 if kind is CurveKind.LINEAR else self.cap.get(kind)
        return POINTS[kind] if end is None else math.floor(end / self.spacing(kind) + _ROUNDING)

    def levels(self, kind: CurveKind) -> list[float]:
        """Its points but the clean one."""
        return [round(self.spacing(kind) * j, _DIGITS) for j in range(1, self.points(kind) + 1)]

    def passes(self) -> tuple[int, int]:
        """What an image takes: forward passes under noise, and the most gradients, each with a forward pass."""
        noisy = sum(self.draws * self.points(kind) for kind in self.kinds if kind not in ATTACKS)
        return noisy, sum(self.restarts * self.steps * self.points(kind) for kind in self.kinds if kind in ATTACKS)


def curves_spec(spec: AuditSpec, plan: CurvePlan) -> AuditSpec:
    """The audit of these curves: the spec's noises, estimators and gates give way to those of the plan.

    Raises:
        pydantic.ValidationError: a grid is empty or has too many points.
    """
    noises: list[dict[str, Any]] = []
    if CurveKind.NOISE in plan.kinds:
        noises.append({"kind": GAUSSIAN, "sigma": plan.levels(CurveKind.NOISE), "clip": plan.clip})
    if CurveKind.LINEAR in plan.kinds:
        noises.append({"kind": LINEAR, "share": plan.levels(CurveKind.LINEAR), "clip": plan.clip})
    estimators: list[dict[str, Any]] = [{"mc": {"samples": plan.draws}}] if noises else []
    for kind in ATTACKS:
        if kind in plan.kinds:
            cap = plan.spacing(kind) * plan.points(kind)
            options = {"step": plan.spacing(kind), "cap": cap, "steps": plan.steps, "restarts": plan.restarts, "clip": plan.clip}
            estimators.append({"radius_pgd": {"label": f"pgd_{kind}", "norm": kind.value, **options}})
    document = {**spec.document(), "noise": noises, "estimators": estimators, "gates": []}
    return AuditSpec.model_validate(document).located(spec.base_dir, spec.name)


def has_gradients(spec: AuditSpec) -> bool:
    """Whether the format of the spec's model has any.

    Raises:
        ModelError: there is no such file, or its format is unknown.
    """
    options = spec.model
    if options.path is None or options.format == "python" or is_hub(options.path):
        return True
    return guess_format(weights_file(spec.base_dir / expanded(options.path)), options.format) != "onnx"


def refuse_unlabelled(spec: AuditSpec, *, trust: bool, skip_bad: bool) -> None:
    """Refuse a data set without labels before anything is computed; some images may have none.

    Raises:
        DataError: none of its labels, or of its first images, is known.
    """
    dataset = open_dataset(spec.dataset, base_dir=spec.base_dir, trust=trust)
    labels = dataset.labels()
    known = (
        bool((labels >= 0).any())
        if labels is not None
        else any(sample.label is not None for sample in first_samples(dataset, _LOOK_AT, skip_bad=skip_bad))
    )
    if not known and len(dataset):
        raise DataError(dataset.where, "has no labels, and the errors of curves are relative to them", "give it labels")
