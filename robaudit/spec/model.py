"""The spec as frozen, validated models, and digests that identify specs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NoReturn, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from robaudit.errors import DataError, SpecError, did_you_mean
from robaudit.levels import (
    ABOUT_PLACE,
    FILE,
    GAUSSIAN,
    INPUT,
    LEVEL_KEYS,
    NONE,
    LevelName,
    NoiseLevel,
    NoisePlace,
    noise_label,
)
from robaudit.plugins import DATASETS, blaming, installed, load_class, reference
from robaudit.settings import BY
from robaudit.spec.class_names import (
    IMAGENET,
    imagenet_names,
    read_class_ids,
    read_class_names,
    read_ids,
)
from robaudit.spec.fields import (
    MISSING_KEY,
    UNKNOWN_KEY,
    WRONG_KEY,
    Bytes,
    Count,
    Number,
    OneOrMore,
    Positive,
    SpecSection,
    Whole,
    about_key,
)
from robaudit.spec.gate_grammar import QUANTITIES, parse_gate
from robaudit.spec.origin import Location, Origin

# Bounds far beyond any audit, so that a slip or a hostile spec is refused at once instead of
# filling memory with tasks.
MOST_NOISES = 100
MOST_LEVELS = 1000
MOST_ROWS = 2**20
MOST_GATES = 1000
MOST_RAY_WORKERS = 10_000


class ModelSpec(SpecSection):
    """The trained model and the normalisation of its input."""

    path: str | None = Field(
        None,
        description="weights file, or a folder as timm and Transformers save it, relative to the "
        "spec file; optional for format python",
    )
    entry: str | None = Field(
        None,
        description="key of the weights in a checkpoint that holds several, for example "
        "model_ema; or the prefix of their names",
    )
    # "memory" stands for a network that a Python program passed: see IN_MEMORY.
    format: Literal["torchscript", "pt2", "safetensors", "onnx", "python", "memory"] | None = Field(
        None, description="default: guessed from the file's suffix and content"
    )
    architecture: str | None = Field(
        None,
        description="safetensors and state dicts: torchvision:NAME, timm:NAME, robaudit:NAME or "
        "package.module:function (--trust); "
        "python: package.module:function",
    )
    architecture_options: dict[str, Any] = Field(
        default_factory=dict, description="keyword arguments of the architecture"
    )
    mean: OneOrMore[Number] = Field(
        (), description="mean per channel, subtracted after the noise is added"
    )
    std: OneOrMore[Positive] = Field(
        (), description="standard deviation per channel, divided by after the noise is added"
    )
    channels: Literal["rgb", "bgr"] = Field(
        "rgb",
        description="order of the colours that the network takes, also in mean and std; images "
        "and noise stay red, green, blue",
    )
    output: str | int | None = Field(
        None, description="key or index of the logits if the model returns a dict or a tuple"
    )

    @model_validator(mode="after")
    def _check(self) -> ModelSpec:
        has_both = self.mean and self.std
        if has_both and len(self.mean) != len(self.std):
            raise ValueError(
                f"mean has {len(self.mean)} values and std has {len(self.std)}; give one for "
                "each channel in both"
            )
        has_source = self.path is not None or self.architecture is not None
        if not has_source and self.format != IN_MEMORY:
            raise ValueError(
                "needs a path (or, for format python, an architecture package.module:function)"
            )
        return self

    @model_serializer(mode="wrap")
    def _without_usual_channels(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Runs that were made before the key existed keep the identity of their spec.
        document: dict[str, Any] = handler(self)
        if document.get("channels") == "rgb":
            del document["channels"]
        return document


class SampleSpec(SpecSection):
    """A seeded random subset, in the order of the data set."""

    size: Count
    seed: Whole = 0


class BaseDatasetSpec(SpecSection):
    """The keys of every kind of data set; each kind adds its own keys, and opens its data."""

    names_from_model: ClassVar[bool] = False
    """Whether the model's own files supply class names that the spec lacks; False for kinds of data
    that have class names themselves."""

    kind: str
    limit: Count | None = Field(None, description="audit the first N samples")
    sample: SampleSpec | None = Field(
        None, description="audit a random subset instead: {size: 1000, seed: 0}"
    )
    ids: Annotated[
        tuple[str, ...] | None,
        BeforeValidator(read_ids, json_schema_input_type=tuple[str | int, ...] | str | None),
    ] = Field(
        None,
        min_length=1,
        description="audit the samples with these ids instead: a list, or a text file with one "
        "per line",
    )
    class_names: Annotated[
        tuple[str, ...] | None,
        BeforeValidator(
            read_class_names,
            json_schema_input_type=tuple[str, ...] | dict[str, str | int] | str | None,
        ),
    ] = Field(
        None,
        description="names by class index, {index: name}, {name: index}, a file of them "
        "(.txt: one per line; .json), or imagenet; also the order of "
        "class folders, which are sorted by name without it",
    )
    class_ids: Annotated[
        tuple[str, ...] | None,
        BeforeValidator(read_class_ids, json_schema_input_type=tuple[str, ...] | str | None),
    ] = Field(
        None,
        description="what folders and labels call the classes, by class index, where that is not "
        "class_names: synsets, for example; "
        "or a file whose lines begin with them",
    )

    @classmethod
    def recognised(cls, written: str, place: Path) -> dict[str, Any] | None:  # noqa: ARG003  for kinds that have a path
        """The dataset keys for a path; None if the data there are not of this kind.

        Args:
            written: the path, as in a spec: a file, a folder, or a pattern of files.
            place: the path on disk.
        """
        return None

    def open(self, base_dir: Path, *, trust: bool) -> Any:
        """Open the whole :class:`~robaudit.datasets.dataset.Dataset`; no image is read yet.

        Args:
            base_dir: the base of relative paths.
            trust: whether Python code that the spec names may run.

        Raises:
            DataError: the data set is missing, damaged or differs from the spec.
        """
        raise NotImplementedError

    def column(self, name: str, base_dir: Path) -> list[str]:
        """The values of another column as text, one for each sample of the whole data set.

        Raises:
            DataError: there is no such column, or this kind has no columns.
        """
        raise DataError(
            BY + f" {name}",
            f"data of kind {self.kind} have no columns",
            "use label or predicted; csv, npz and hf have columns",
        )

    @model_validator(mode="before")
    @classmethod
    def _names_of_imagenet(cls, values: Any) -> Any:
        """The names and synsets of ImageNet's classes, where ``class_names`` is ``imagenet``."""
        if not isinstance(values, Mapping) or values.get("class_names") != IMAGENET:
            return values
        named = imagenet_names()
        return {**named, **values, "class_names": named["class_names"]}

    @model_validator(mode="after")
    def _one_selection(self) -> BaseDatasetSpec:
        # Two selections could mean either order, with other samples in each.
        selections = [key for key in ("limit", "sample", "ids") if getattr(self, key) is not None]
        if len(selections) > 1:
            raise ValueError(f"{selections[0]} and {selections[1]} cannot be combined; keep one")
        return self


Interpolation = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]


class ImageOptions(BaseDatasetSpec):
    """How image files become tensors."""

    resize: Count | tuple[Count, Count] | None = Field(
        None, description="shorter side, or [height, width], to which images are stretched"
    )
    interpolation: Interpolation = Field(
        "bilinear", description="filter of the resize (Pillow's, antialiased)"
    )
    crop: Count | tuple[Count, Count] | None = Field(
        None, description="centre crop, after the resize"
    )
    crop_rounding: Literal["round", "floor"] = Field(
        "round",
        description="how a crop corner between two pixels is rounded: round (torchvision, timm), "
        "floor (Transformers)",
    )
    channels: Literal[1, 3] = 3

    @field_validator("channels", mode="before")
    @classmethod
    def _order_of_the_network(cls, value: object) -> object:
        if value in ("rgb", "bgr"):
            raise ValueError(f"is 1 or 3; colours in the network's order: model.channels: {value}")
        return value

    _is_photo: bool = PrivateAttr(default=False)

    @property
    def is_photo(self) -> bool:
        """Whether images stay as they are decoded, of any size."""
        return self._is_photo

    def of_photos(self) -> Self:
        """The same files as they are decoded: without resize and crop, grey or colour."""
        photos = self.model_copy(update={"resize": None, "crop": None, "channels": None})
        photos._is_photo = True
        return photos


class FilesSpec(ImageOptions):
    """Image files in a folder or listed in a file."""

    names_from_model = True

    path: str
    root: str | None = Field(
        None,
        description="the folder that must contain all image files, links resolved; default: the "
        "data's own (path)",
    )


IN_MEMORY = "memory"
"""The kind of data and format of models passed to :func:`robaudit.audit` by a Python program."""


class MemorySpec(BaseDatasetSpec):
    """Samples that a Python program passed to robaudit.audit; no spec file can name them."""

    kind: Literal["memory"] = "memory"

    def open(self, base_dir: Path, *, trust: bool) -> NoReturn:
        """Refuse: only the program has the samples."""
        what = "the data were objects in the memory of a Python program, and are not kept"
        raise DataError(
            "dataset",
            what,
            "pass them again: robaudit.audit(net, dataset, ..., out=RUN) checks that they are "
            "the same",
        )


def dataset_kinds() -> list[str]:
    """The installed kinds of data sets that a spec can name, in alphabetical order; nothing is
    imported."""
    return list(installed(DATASETS, "data set kind"))


def dataset_kind(name: str) -> type[BaseDatasetSpec]:
    """The section of a kind of data set.

    Raises:
        SpecError: there is no such kind.
        RobauditError: its plugin does not import, or is not a section of a spec.
    """
    if name == IN_MEMORY:
        return MemorySpec
    return load_class(DATASETS, "data set kind", name, BaseDatasetSpec, "dataset")


def recognised(written: str, base: Path) -> dict[str, Any] | None:
    """The dataset section for a path relative to the folder ``base``, of the first kind that
    recognises it; None if none does."""
    for kind in dataset_kinds():
        section = dataset_kind(kind)
        with blaming(f"data set kind {kind}", section):
            keys = section.recognised(written, base / written)
        if keys is not None:
            return {"kind": kind, **keys}
    return None


def _of_its_kind(value: object, info: ValidationInfo) -> object:
    """Validate the dataset section by its kind."""
    if not isinstance(value, Mapping):
        return value
    name = value.get("kind")
    kinds = dataset_kinds()
    if name is None:
        raise about_key(WRONG_KEY, "kind", f"is missing; kind: {' | '.join(kinds)}")
    # A spec file may not name the kind memory, but a program's spec does, so it is not suggested.
    if name not in kinds and name != IN_MEMORY:
        remedy = did_you_mean(str(name), kinds)
        raise about_key(WRONG_KEY, "kind", f"unknown kind {name!r}; {remedy}")
    return dataset_kind(name).model_validate(value, context=info.context)


# Written with all keys of its kind; pydantic would write only those of the base class.
DatasetSpec = Annotated[SerializeAsAny[BaseDatasetSpec], BeforeValidator(_of_its_kind)]


def noise_entries(value: object) -> list[tuple[Location, object]]:
    """The noises as written, each with its location below ``noise``.

    A single noise counts as a list of one; a noise with several names becomes one noise for each
    name.
    """
    entries: list[tuple[Location, object]] = []
    listed = value if isinstance(value, list | tuple) else [value]
    for i, entry in enumerate(listed):
        place: Location = (i,) if listed is value else ()
        names = entry.get("name") if isinstance(entry, Mapping) else None
        if isinstance(entry, Mapping) and isinstance(names, list | tuple):
            entries += [(place, {**entry, "name": name}) for name in names]
        else:
            entries.append((place, entry))
    return entries


def _each_name(value: object) -> object:
    """The noises with one name each."""
    return tuple(entry for _, entry in noise_entries(value))


Levels = Annotated[OneOrMore[Positive], Field(max_length=MOST_LEVELS)]
_LONGEST_NAME = 60


class NoiseSpec(SpecSection):
    """A noise: its kind, its levels under the kind's level name, and the kind's options, which the
    kind checks."""

    model_config = ConfigDict(extra="allow")  # the options of the kind

    kind: str = GAUSSIAN
    # No colon and no equals sign, which separate the parts of a level's key: gaussian:sigma=0.05.
    name: Annotated[str, Field(pattern=r"^[\w.-]*$", max_length=_LONGEST_NAME)] = Field(
        "", description="label in the results; default: the kind"
    )
    at: NoisePlace = Field(INPUT, description=ABOUT_PLACE)
    clip: bool = Field(False, description="clip the noisy pixels to [0, 1]")
    sigma: Levels | None = Field(
        None,
        description="standard deviations in pixel units ([0, 1]); fractions such as 8/255 are "
        "allowed",
    )
    eps: Levels | None = Field(None, description="radii in pixel units ([0, 1])")
    photons: Levels | None = Field(None, description="photons of a white pixel")
    share: Levels | None = Field(None, description="shares of the values")
    size: Levels | None = Field(None, description="multiples of the kind's ranges")
    severity: Levels | None = Field(None, description="steps from 1 to 5")
    level: Levels | None = Field(
        None, description="levels of a kind that has no other name for them"
    )

    @model_validator(mode="after")
    def _one_level_name(self) -> NoiseSpec:
        present = [name for name in LEVEL_KEYS if getattr(self, name) is not None]
        if not present:
            for key in self.options:
                hint = did_you_mean(key, LEVEL_KEYS)
                # Without a near name it lists them all: an option of the kind.
                if hint.startswith("did you mean"):
                    raise about_key(UNKNOWN_KEY, key, hint)
            # The level name of another kind is known only once its plugin is imported.
            if self.kind == GAUSSIAN:
                about_sigma = NoiseSpec.model_fields["sigma"].description or ""
                raise about_key(MISSING_KEY, "sigma", about_sigma)
            raise ValueError(f"has no levels: the key {' or '.join(LEVEL_KEYS)} is missing")
        if len(present) > 1:
            raise ValueError(
                f"has two kinds of levels, {present[0]} and {present[1]}; keep the one that "
                f"{self.kind} takes"
            )
        if len(self.label) > _LONGEST_NAME:
            raise ValueError(f"is called {self.label!r}, which is too long; shorten its name")
        if self.label == NONE:
            raise ValueError(
                f"is called {self.label!r}, the word for results without noise; choose another name"
            )
        # Tables leave the label gaussian out: "sigma 0.05" means isotropic Gaussian noise.
        if self.name == GAUSSIAN and self.kind != GAUSSIAN:
            raise ValueError(
                f"is called {GAUSSIAN!r} and is of the kind {self.kind!r}; choose another name"
            )
        # A level is part of the address of a result, which two rows would share.
        if len(set(self.levels)) != len(self.levels):
            raise about_key(
                WRONG_KEY, present[0].value, f"the same {present[0]} appears twice; list each once"
            )
        return self

    @property
    def label(self) -> str:
        """Its name in the results."""
        return noise_label(self.name or self.kind, self.at)

    @property
    def level_name(self) -> LevelName:
        """The key of its levels."""
        return next(name for name in LEVEL_KEYS if getattr(self, name) is not None)

    @property
    def levels(self) -> tuple[float, ...]:
        """The levels as numbers."""
        values: tuple[float, ...] = getattr(self, self.level_name)
        return values

    @property
    def options(self) -> dict[str, Any]:
        """The options of the kind."""
        return dict(self.model_extra or {})

    @property
    def at_levels(self) -> tuple[NoiseLevel, ...]:
        """The noise at each of its levels, in the spec's order."""
        return tuple(NoiseLevel(self.label, level, self.level_name) for level in self.levels)

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        """The noise as in a spec: only its own level name, and its options beside the keys."""
        # Without the default place, so that a run without files keeps the identity of its spec.
        place = {"at": self.at} if self.at == FILE else {}
        return {
            "kind": self.kind,
            "name": self.label,
            **place,
            "clip": self.clip,
            str(self.level_name): list(self.levels),
            **self.options,
        }


class EstimatorSpec(SpecSection):
    """An estimator by name, with its options, which the estimator checks."""

    name: str
    # No colon, which separates the label from the part of a result's name: qnorm_path:q=100.
    label: str = Field(
        "",
        min_length=1,
        pattern=r"^[\w.-]+$",
        description="name in the results; default: the estimator's; needed to run it twice",
    )
    noise: OneOrMore[str] = Field(
        (), description="labels of the noises to compute it for; default: all noises"
    )
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: object) -> object:
        """Accept ``name`` and ``{name: options}``, with label and noise among the options."""
        value = with_options(value)
        if not isinstance(value, dict):
            return value
        if len(value) != 1:
            keys = ", ".join(map(str, value)) or "none"
            raise ValueError(
                f"an entry of the list has one key, the estimator's name, as in {{{reference()}: "
                f"{{draws: 1000}}}}; this one has: {keys}"
            )
        ((name, options),) = value.items()
        if not isinstance(options, dict):
            return {"name": name, "options": options}  # refused, with a message about the options
        entry_keys = {key: options[key] for key in ("label", "noise") if key in options}
        return {
            "name": name,
            "label": name,
            **entry_keys,
            "options": {key: options[key] for key in options if key not in entry_keys},
        }


def with_options(entry: object) -> object:
    """An estimator or an objective as ``{name: options}``; a malformed entry unchanged.

    It may be written as a name, as ``{name: options}``, or, as a run's spec has it, as ``{name:
    NAME, label: LABEL, options: {...}}``.
    """
    if isinstance(entry, str):
        return {entry: {}}
    if not isinstance(entry, dict):
        return entry
    name = entry.get("name")
    options = entry.get("options") or {}
    if isinstance(name, str) and isinstance(options, dict):
        others = {key: entry[key] for key in entry if key not in ("name", "options")}
        return {name: {**others, **options}}
    if len(entry) == 1:
        ((name, options),) = entry.items()
        return {name: {} if options is None else options}
    return entry


DEFAULT_ESTIMATOR = reference()
"""The estimator of a spec that names none."""

Precision = Literal["fp32", "tf32", "bf16", "fp64"]


class RunSpec(SpecSection):
    """How to run the audit; only seed and precision change the results.

    Device and deterministic may change the last digits.
    """

    seed: Annotated[Whole, Field(ge=0, lt=2**63)] = 0
    device: str = Field(
        "auto", description="cpu, cuda, cuda:1, several as cuda:0,cuda:1 or cuda:all, or auto"
    )
    batch_size: Literal["auto"] | Annotated[Whole, Field(gt=0, le=MOST_ROWS)] = "auto"
    precision: Precision = Field(
        "fp32",
        description="of the network: tf32 (CUDA) and bf16 (noisy passes without gradients) are "
        "faster; probabilities are always float64",
    )
    workers: Literal["auto"] | Annotated[Count, Field(le=MOST_RAY_WORKERS)] = Field(
        "auto", description="number of Ray workers; auto: as many as the cluster has room for"
    )
    memory: Literal["auto"] | Bytes = Field(
        "auto",
        description="main memory to use at most, for example 4GB or 512MiB (CUDA memory is "
        "measured); auto: what is free",
    )
    deterministic: bool = Field(
        False,
        description="the same bits from every run on one machine or one kind of CUDA device, at "
        "some cost in speed",
    )
    engine: Literal["local", "ray"] = Field(
        "local", description="where to compute: on this machine, or on the workers of a Ray cluster"
    )
    gpus_per_worker: Literal["auto"] | Annotated[Number, Field(ge=0, le=64)] = Field(
        "auto",
        description="GPUs of a Ray worker, for example 1 or 0.5; auto: 1 where the cluster has any",
    )
    as_given: bool = Field(
        False,
        description="audit input that cannot be meant, such as pixels of 0 to 255, unchanged, "
        "with a warning",
    )

    @model_validator(mode="before")
    @classmethod
    def _command_line_only(cls, values: Any) -> Any:
        # With an address, the author of a spec could choose a cluster whose code runs here.
        if isinstance(values, Mapping) and "ray_address" in values:
            raise about_key(
                WRONG_KEY, "ray_address", "is for the command line alone: --ray-address"
            )
        return values

    @model_validator(mode="after")
    def _check(self) -> RunSpec:
        # With an explicit engine: local they are unused, but no mistake.
        if "engine" in self.model_fields_set:
            return self
        for key in ("workers", "gpus_per_worker"):
            if getattr(self, key) != "auto":
                raise ValueError(f"{key} is for engine: ray; add it, or leave {key} out")
        return self


def _gate(text: str) -> str:
    """Refuse text that is not a gate."""
    # In YAML's [mean(estimator=mc, sigma=0.1) >= 0.9] the comma ends an entry.
    if text.count("(") != text.count(")"):
        raise ValueError("is only part of a gate: within [ ] a comma ends it unless it is quoted")
    try:
        parse_gate(text, QUANTITIES, "gates")
    except SpecError as error:
        raise ValueError(f"{error.what}; {error.remedy}") from error
    return text


class AuditSpec(SpecSection):
    """A whole audit: model, data, noise, estimators and how to run them."""

    name: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        None,
        description="what tables, pages and pictures call the run; default: the name of the "
        "spec's file",
    )
    model: ModelSpec = Field(
        description="the trained network, for example {path: model.torchscript.pt}"
    )
    dataset: DatasetSpec = Field(
        description="the labelled images, for example {kind: npz, path: test.npz}"
    )
    noise: Annotated[
        tuple[NoiseSpec, ...],
        BeforeValidator(_each_name, json_schema_input_type=NoiseSpec | tuple[NoiseSpec, ...] | str),
        Field(max_length=MOST_NOISES),
    ] = Field(
        (),
        description="the noise on the pixels, for example {sigma: [0.05, 8/255]}, or a list of "
        "noises, or a YAML file that has one under its key noise; "
        "may be omitted if no estimator needs noise",
    )
    estimators: Annotated[OneOrMore[EstimatorSpec], Field(min_length=1)] = (
        EstimatorSpec(name=DEFAULT_ESTIMATOR),
    )
    run: RunSpec = RunSpec()
    flag: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None,
        description="a probability of staying robust: an image that is certain to lie on one side "
        "of it takes no more noisy copies, for example 0.5; for lists of images, not for means",
    )
    gates: OneOrMore[Annotated[str, AfterValidator(_gate)]] = Field(
        (),
        max_length=MOST_GATES,
        description="what robaudit gate requires of the results, for example [mean >= 0.9]; they "
        "do not change what is computed",
    )

    @field_validator("noise")
    @classmethod
    def _own_labels(cls, noise: tuple[NoiseSpec, ...]) -> tuple[NoiseSpec, ...]:
        labels = [entry.label for entry in noise]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(
                    f"two noises are called {label!r}; give one a name of its own: name: ..."
                )
        return noise

    @property
    def levels(self) -> tuple[NoiseLevel, ...]:
        """Every level of every noise, in the spec's order."""
        levels: list[NoiseLevel] = []
        for noise in self.noise:
            levels += noise.at_levels
        return tuple(levels)

    _origin: Origin = PrivateAttr(default_factory=Origin)

    @property
    def origin(self) -> Origin:
        """The origin, for messages and relative paths."""
        return self._origin

    @property
    def base_dir(self) -> Path:
        """The base of relative paths in the spec."""
        return self._origin.folder

    @property
    def stem(self) -> str:
        """The name of the spec file without its suffix; names of run folders begin with it."""
        return self._origin.name

    @property
    def title(self) -> str:
        """The run's name in tables, pages and pictures."""
        return self.name or self.stem

    def with_origin(self, origin: Origin) -> AuditSpec:
        """This spec, which now knows its origin."""
        self._origin = origin
        return self

    def document(self) -> dict[str, Any]:
        """The spec as plain JSON values, with every default filled in; without a flag, if there is
        none."""
        document = self.model_dump(mode="json")
        # Runs from before there was a flag have the same identity.
        if document["flag"] is None:
            del document["flag"]
        return document


_SAME_RESULTS = (
    "device",
    "batch_size",
    "workers",
    "memory",
    "deterministic",
    "engine",
    "gpus_per_worker",
    "as_given",
)
"""Keys of the section run that leave the results the same, up to the last digits."""


def digest(document: object) -> str:
    """sha256 (hex) of a JSON document in canonical form."""
    # Sorted keys without spaces: equal documents have equal texts.
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def identity(spec_document: Mapping[str, Any]) -> str:
    """sha256 of what a run computes: the spec without its name, its gates and the keys that do not
    change results."""
    document = json.loads(json.dumps(spec_document))  # a deep copy
    document.pop("gates", None)
    document.pop("name", None)
    for key in _SAME_RESULTS:
        document["run"].pop(key, None)
    return digest(document)


def base_identity(spec_document: Mapping[str, Any]) -> str:
    """sha256 of what an extension must share: the spec without noise, estimators and number of
    samples."""
    document = json.loads(json.dumps(spec_document))  # a deep copy
    document.pop("noise")
    document.pop("estimators")
    # A random subset of another size contains the smaller one, if the seed is the same.
    document["dataset"].pop("limit")
    if document["dataset"]["sample"] is not None:
        document["dataset"]["sample"].pop("size")
    return identity(document)
