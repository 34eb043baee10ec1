"""Audit how robust an image classifier is to everyday sensor noise.

On Intel's processors, importing the package asks MKL for reproducible sums (``MKL_CBWR``, unless it
is set). MKL otherwise picks its kernels by the size of a batch, so that the last bits of an image's
logits depend on how many images pass through the network with it. MKL reads the variable at its
first matrix product, and later changes have no effect. On AMD's processors the default is already
reproducible, and this mode is not with two threads.
"""

import sys

# `python -m robaudit` puts the working folder first on the path of modules, and calls the program
# "-m" while it looks for it. An audit may run in a stranger's folder, whose typing.py must not:
# so this comes before all other imports.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    del sys.path[0]

import os

# As typing's, whose import would take longer than this one.
TYPE_CHECKING = False


def _on_intel() -> bool:
    """Whether this is one of Intel's processors."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:  # noqa: PTH123  pathlib would double the time of the import
            # The vendor is in the second line.
            return "GenuineIntel" in file.read(256)
    except OSError:
        # Windows says it here; a Mac has no MKL.
        return "GenuineIntel" in os.environ.get("PROCESSOR_IDENTIFIER", "")


if _on_intel():
    os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

if TYPE_CHECKING:
    from robaudit.api.audit import audit as audit
    from robaudit.api.camera import MeasuredNoise as MeasuredNoise, measure_noise as measure_noise
    from robaudit.api.pairs import compare_runs as compare_runs, verify_run as verify_run
    from robaudit.api.run import Run as Run, read_run as read_run
    from robaudit.errors import RobauditError as RobauditError, RobauditWarning as RobauditWarning
    from robaudit.engine.estimator import Estimator as Estimator, Need as Need
    from robaudit.engine.batch import ImageBatch as ImageBatch
    from robaudit.levels import (
        LevelChoice as LevelChoice,
        LevelName as LevelName,
        NoiseLevel as NoiseLevel,
    )
    from robaudit.names import Part as Part, PartName as PartName
    from robaudit.noise.noise import AdditiveNoise as AdditiveNoise, Noise as Noise
    from robaudit.numerics.intervals import clopper_pearson as clopper_pearson
    from robaudit.numerics.margins import margins as margins
    from robaudit.quantities import (
        CERTIFIED as CERTIFIED,
        CONFIDENCE as CONFIDENCE,
        LOSS as LOSS,
        P_ROBUST as P_ROBUST,
        RADIUS as RADIUS,
        Interval as Interval,
        IntervalKind as IntervalKind,
        Quantity as Quantity,
    )
    from robaudit.results import (
        Certificate as Certificate,
        LossNorm as LossNorm,
        Result as Result,
        Searched as Searched,
        Votes as Votes,
    )
    from robaudit.runs.rows import Row as Row
    from robaudit.spec.read import load_spec as load_spec
    from robaudit.spec.model import AuditSpec as AuditSpec

_NAMES = {
    "robaudit.api.audit": ("audit",),
    "robaudit.api.camera": ("MeasuredNoise", "measure_noise"),
    "robaudit.api.pairs": ("compare_runs", "verify_run"),
    "robaudit.api.run": ("Run", "read_run"),
    "robaudit.errors": ("RobauditError", "RobauditWarning"),
    "robaudit.engine.estimator": ("Estimator", "Need"),
    "robaudit.engine.batch": ("ImageBatch",),
    "robaudit.levels": ("LevelChoice", "LevelName", "NoiseLevel"),
    "robaudit.names": ("Part", "PartName"),
    "robaudit.noise.noise": ("AdditiveNoise", "Noise"),
    "robaudit.numerics.intervals": ("clopper_pearson",),
    "robaudit.numerics.margins": ("margins",),
    "robaudit.quantities": (
        "CERTIFIED",
        "CONFIDENCE",
        "LOSS",
        "P_ROBUST",
        "RADIUS",
        "Interval",
        "IntervalKind",
        "Quantity",
    ),
    "robaudit.results": ("Certificate", "LossNorm", "Result", "Searched", "Votes"),
    "robaudit.runs.rows": ("Row",),
    "robaudit.spec.read": ("load_spec",),
    "robaudit.spec.model": ("AuditSpec",),
}
"""The public names by the module that defines them."""
_HOMES: dict[str, str] = {}
for _module, _names in _NAMES.items():
    _HOMES.update(dict.fromkeys(_names, _module))
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that ``import robaudit`` stays fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'robaudit' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names only, for completion."""
    return sorted(__all__)
