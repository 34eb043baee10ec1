"""What does the user ask for: the YAML spec as frozen, checked models (imports no torch)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, field_validator, model_validator

from robaudit.errors import SpecError
from robaudit.spec_datasets import DatasetSpec
from robaudit.spec_fields import Bytes, Number, Part, Positive, as_tuple, no_bool
from robaudit.spec_gates import QUANTITIES, parse_gate

SMALLEST_SIGMA, LARGEST_SIGMA = 1e-6, 1e3
MOST_ROWS, MOST_WORKERS, MOST_GATES = 2**20, 64, 1000
MODEL_FORMATS = ("torchscript", "pt2", "safetensors", "onnx", "python")


class ModelSpec(Part):
    """The trained model and what to do to pixels before it."""

    path: str | None = Field(None, description="weights file, relative to the spec file; python models: optional")
    format: Literal["torchscript", "pt2", "safetensors", "onnx", "python"] | None = Field(
        None, description="guessed from the file's suffix and content when absent"
    )
    architecture: str | None = Field(
        None,
        description="safetensors: torchvision:NAME, robaudit:NAME or package.module:function (--trust); python: package.module:function",
    )
    architecture_options: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the architecture")
    mean: Annotated[tuple[Number, ...], BeforeValidator(as_tuple)] = Field((), description="per channel, subtracted after the noise")
    std: Annotated[tuple[Positive, ...], BeforeValidator(as_tuple)] = Field((), description="per channel, divided by after the noise")
    output: str | int | None = Field(None, description="key or index of the logits where the model returns a dict or a tuple")

    @model_validator(mode="after")
    def _check(self) -> ModelSpec:
        if self.mean and self.std and len(self.mean) != len(self.std):
            raise ValueError(f"mean has {len(self.mean)} values and std has {len(self.std)}; give one for each channel in both")
        if self.path is None and self.architecture is None:
            raise ValueError("needs a path (or, for format python, an architecture package.module:function)")
        return self


class NoiseSpec(Part):
    """The noise added to the pixels."""

    kind: Literal["gaussian"] = "gaussian"
    sigma: Annotated[tuple[Positive, ...], BeforeValidator(as_tuple)] = Field(
        min_length=1, description="standard deviations in pixel units ([0, 1]); 8/255 is understood"
    )
    clip: bool = Field(False, description="clip the noisy pixels to [0, 1]")

    @field_validator("sigma")
    @classmethod
    def _distinct(cls, sigma: tuple[float, ...]) -> tuple[float, ...]:
        for level in sigma:
            if not SMALLEST_SIGMA <= level <= LARGEST_SIGMA:
                raise ValueError(
                    f"{level:g} is no noise level: pixels are in [0, 1]; give one from {SMALLEST_SIGMA:g} to {LARGEST_SIGMA:g}"
                )
        if len(set(sigma)) != len(sigma):
            raise ValueError("the same sigma stands twice; list each once")
        return sigma


class EstimatorSpec(Part):
    """One estimator by name, with its options (checked by the estimator itself)."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: object) -> object:
        if isinstance(value, str):
            return {"name": value}
        if isinstance(value, dict) and len(value) != 1 and "name" not in value:
            keys = ", ".join(map(str, value)) or "none"
            raise ValueError(f"an entry of the list has one key, the estimator's name, as in {{mc: {{samples: 1000}}}}; it has: {keys}")
        if isinstance(value, dict) and len(value) == 1 and "name" not in value:
            name, options = next(iter(value.items()))
            return {"name": name, "options": {} if options is None else options}
        return value


DEFAULT_ESTIMATOR = "logit_gaussian"
"""What runs where a spec names no estimator."""

Precision = Literal["fp32", "tf32", "bf16", "fp64"]


class RunSpec(Part):
    """How to run it; only seed and precision can change a number (device and deterministic its last digits)."""

    seed: Annotated[int, Field(ge=0, lt=2**63), BeforeValidator(no_bool)] = 0
    device: str = Field("auto", description="cpu, cuda, cuda:1 or auto")
    batch_size: Literal["auto"] | Annotated[int, Field(gt=0, le=MOST_ROWS), BeforeValidator(no_bool)] = "auto"
    precision: Precision = Field(
        "fp32",
        description="of the network: tf32 (CUDA) and bf16 (noisy passes without gradients) are faster; probabilities are always float64",
    )
    workers: Literal["auto"] | Annotated[int, Field(ge=0, le=MOST_WORKERS), BeforeValidator(no_bool)] = Field(
        "auto", description="threads that read and decode images ahead of the network; 0: none; auto: 4 with CUDA, 0 on the CPU"
    )
    memory: Literal["auto"] | Bytes = Field(
        "auto", description="memory to stay within, as 4GB or 512MiB (main memory; CUDA's is measured); auto: what the machine leaves free"
    )
    deterministic: bool = Field(False, description="the same bits from every run on one kind of CUDA device, at some cost in speed")


def _gate(text: str) -> str:
    if text.count("(") != text.count(")"):
        raise ValueError("is half a gate: within [ ] a comma ends it unless it is quoted")
    try:
        parse_gate(text, QUANTITIES, "gates")
    except SpecError as error:
        raise ValueError(f"{error.what}; {error.remedy}") from error
    return text


class AuditSpec(Part):
    """A whole audit: model, data, noise, estimators and how to run them."""

    model: ModelSpec = Field(description="the trained network, for example {path: model.torchscript.pt}")
    dataset: DatasetSpec = Field(description="the labelled images, for example {kind: npz, path: test.npz}")
    noise: NoiseSpec = Field(description="what is added to the pixels, for example {sigma: [0.05, 8/255]}")
    estimators: Annotated[tuple[EstimatorSpec, ...], Field(min_length=1)] = (EstimatorSpec(name=DEFAULT_ESTIMATOR),)
    run: RunSpec = RunSpec()
    gates: Annotated[tuple[Annotated[str, AfterValidator(_gate)], ...], BeforeValidator(as_tuple)] = Field(
        (), max_length=MOST_GATES, description="what robaudit gate requires of the results, for example [mean >= 0.9]; computes nothing"
    )

    _base_dir: Path = PrivateAttr(default_factory=Path.cwd)
    _name: str = PrivateAttr(default="audit")

    @property
    def base_dir(self) -> Path:
        """The folder that relative paths in the spec start from."""
        return self._base_dir

    @property
    def name(self) -> str:
        """The stem of the spec file."""
        return self._name

    def located(self, base_dir: Path, name: str) -> AuditSpec:
        """Say where the spec came from: the folder of its relative paths and its name."""
        self._base_dir, self._name = base_dir, name
        return self

    def document(self) -> dict[str, Any]:
        """The spec as plain JSON values, every default filled in."""
        return self.model_dump(mode="json")


def sigma_text(sigma: float) -> str:
    """A noise level as people write it: at most six significant digits."""
    return f"{sigma:.6g}" if math.isfinite(sigma) else str(sigma)
