"""The training spec: its YAML as frozen models; reading it imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationError, field_validator, model_validator

from robaudit.plugins import OBJECTIVES, refuse_unknown
from robaudit.spec.class_names import BASE_DIR
from robaudit.spec.document import read_document
from robaudit.spec.fields import Count, Number, OneOrMore, Positive, SpecSection, Whole
from robaudit.spec.model import (
    AuditSpec,
    BaseDatasetSpec,
    DatasetSpec,
    digest,
    noise_entries,
    with_options,
)
from robaudit.spec.origin import Location, Origin
from robaudit.spec.read import put, read_setting
from robaudit.spec.validation_errors import explain

# The audit spec is checked before there is a model: this one takes its place.
_PLACEHOLDER = {"path": "model.safetensors", "architecture": "robaudit:linear"}


class NetworkSpec(SpecSection):
    """The network to train, from fresh weights."""

    architecture: str = Field(
        description="robaudit:NAME, torchvision:NAME, timm:NAME, or package.module:Class (--trust)",
    )
    architecture_options: dict[str, Any] = Field(
        default_factory=dict, description="keyword arguments of the architecture"
    )
    mean: OneOrMore[Number] = Field((), description="mean per channel, subtracted from the pixels")
    std: OneOrMore[Positive] = Field((), description="standard deviation per channel")
    orthogonal: bool = Field(
        False,
        description="keep the weights of all linear layers orthogonal (Björck): a Lipschitz "
        "constant of 1",
    )

    @model_validator(mode="after")
    def _same_channels(self) -> NetworkSpec:
        if len(self.mean) != len(self.std):
            raise ValueError(
                f"mean has {len(self.mean)} values and std has {len(self.std)}; give one for "
                "each channel in both"
            )
        return self


class ObjectiveSpec(SpecSection):
    """One objective by name, with its options (checked by the objective itself)."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: object) -> object:
        """``pgd`` and ``{pgd: {eps: 0.3}}`` become a name with options."""
        value = with_options(value)
        if not isinstance(value, dict):
            return value
        if len(value) != 1:
            keys = ", ".join(map(str, value)) or "none"
            raise ValueError(
                "has one key, the objective's name, as in {pgd: {eps: 0.3}}; this one has: "
                f"{keys}"
            )
        ((name, options),) = value.items()
        return {"name": name, "options": options}


class Recipe(SpecSection):
    """Epochs, batches, optimizer and seed, for any network and objective."""

    epochs: Count = Field(10, description="passes over the images")
    batch_size: Count = Field(
        128,
        description="images of a step, at most: the batches of an epoch differ in size by at "
        "most one image",
    )
    optimizer: Literal["adam", "sgd"] = Field(
        "adam", description="adam, or sgd (with a momentum of 0.9)"
    )
    lr: Positive = Field(1e-3, description="learning rate")
    schedule: Literal["constant", "cosine"] = Field(
        "constant", description="of the learning rate: cosine falls to 0 at the end"
    )
    weight_decay: Annotated[Number, Field(ge=0)] = 0.0
    seed: Annotated[Whole, Field(ge=0, lt=2**63)] = 0


class TrainingSpec(Recipe):
    """A whole training: network, data, objective and recipe."""

    name: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        None, description="of the model; default: the name of the spec's file"
    )
    network: NetworkSpec = Field(
        description="the network, for example {architecture: robaudit:small_cnn}"
    )
    dataset: DatasetSpec = Field(
        description="the labelled images to train on, for example {kind: npz, path: train.npz}"
    )
    objective: ObjectiveSpec = Field(
        ObjectiveSpec(name="cross_entropy"),
        description="what is minimised, for example {pgd: {eps: 0.3}}",
    )
    device: str = Field("auto", description="cpu, cuda, cuda:1 or auto")
    out: str | None = Field(
        None,
        description="the folder of the results, relative to the spec file; default: models/<name>",
    )
    audit: dict[str, Any] = Field(
        default_factory=dict,
        description="sections of the audit spec that is written next to the weights: dataset, "
        "noise, estimators, gates, run; "
        "default: the training data and Gaussian noise of 0.1 and 0.25",
    )

    _origin: Origin = PrivateAttr(default_factory=Origin)

    @field_validator("audit")
    @classmethod
    def _no_model(cls, audit: dict[str, Any]) -> dict[str, Any]:
        if "model" in audit:
            raise ValueError("names a model, which is the trained one; leave model out")
        return audit

    @property
    def origin(self) -> Origin:
        """Where the spec comes from, for messages and relative paths."""
        return self._origin

    @property
    def title(self) -> str:
        """The name of the model."""
        return self.name or self._origin.name

    def identity(self, data: str) -> str:
        """sha256 of what determines the weights: the images, and the spec without names, paths and
        audit.

        Args:
            data: the digest of the images and labels.
        """
        # The images count by their digest: the same images from another place are the same data.
        names_and_places = {"name", "out", "device", "audit", "dataset"}
        spec = self.model_dump(mode="json", exclude=names_and_places)
        return digest({"data": data, **spec})

    def audit_spec(self) -> AuditSpec:
        """The audit of the trained model, without its ``model`` section.

        Raises:
            SpecError: the section ``audit`` is not valid.
        """
        document = {
            "model": _PLACEHOLDER,
            "dataset": self.dataset,
            "noise": {"sigma": [0.1, 0.25]},
            **self.audit,
        }
        if isinstance(self.dataset, BaseDatasetSpec) and "dataset" not in self.audit:
            # validated again from its document, as the section of a file is
            document["dataset"] = self.dataset.model_dump(mode="json", exclude_unset=True)
        try:
            return AuditSpec.model_validate(document, context={BASE_DIR: self.origin.folder})
        except ValidationError as error:
            # An error names entry i of the list of noises; the file may have written it otherwise.
            moved: dict[Location, Location] = {
                ("audit", "noise", i): ("audit", "noise", *place)
                for i, (place, _) in enumerate(noise_entries(self.audit.get("noise")))
            }
            raise explain(error, replace(self.origin, moved=moved), ("audit",)) from error


def training_spec(document: Mapping[str, Any], origin: Origin | None = None) -> TrainingSpec:
    """The training spec in a document of plain values.

    Args:
        document: the parsed YAML.
        origin: where the document comes from; default: relative paths start from the working
            folder.

    Raises:
        SpecError: it is not valid.
    """
    origin = origin or Origin(name="model")
    try:
        spec = TrainingSpec.model_validate(document, context={BASE_DIR: origin.folder})
    except ValidationError as error:
        raise explain(error, origin) from error
    spec._origin = origin
    refuse_unknown(OBJECTIVES, "objective", spec.objective.name, origin.place(("objective",)))
    spec.audit_spec()  # a mistake in the audit shows before hours of training
    return spec


def load_training(
    path: Path, *, settings: Sequence[str] = (), overrides: Mapping[Location, Any] | None = None
) -> TrainingSpec:
    """Read a training spec and apply the command line's changes.

    Args:
        path: the YAML file; paths in it are relative to its folder.
        settings: ``key=value`` with dotted keys (``lr=0.01``, ``objective.pgd.eps=0.1``), values in
            YAML.
        overrides: further values by location.

    Raises:
        SpecError: the file is missing, is not YAML, or is not a valid spec; the line is named.
    """
    raw, lines = read_document(path)
    # All settings are read before anything is applied: a malformed one is reported first.
    changes = [read_setting(setting, "lr=0.01") for setting in settings]
    for location, value in [*(overrides or {}).items(), *changes]:
        put(raw, location, value)
    return training_spec(raw, Origin(str(path), path.resolve().parent, path.stem, lines))
