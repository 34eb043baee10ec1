"""The content of run.json: built by the audit, written and read by
:class:`robaudit.runs.folder.RunFolder`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from robaudit.errors import RunError
from robaudit.levels import LevelName, NoiseLevel
from robaudit.numerics.image_intervals import simultaneous
from robaudit.results import LARGEST
from robaudit.spec.validation_errors import wanted
from robaudit.text import printable


def _plain(text: str) -> str:
    """Check that a text can be printed as it is: a run.json may come from a stranger."""
    if printable(text) != text:
        raise ValueError(f"holds control characters: {printable(text)}")
    return text


def _step(text: str) -> str:
    """Check the key of a duration: ``label@noise level``, or the name of a step that all estimators
    share."""
    _, separator, level_key = text.partition("@")
    if separator:
        NoiseLevel.from_key(level_key)
    return text


def _readable(spec: dict[str, Any]) -> dict[str, Any]:
    """Check the parts of a spec that readers use without validating it as a spec.

    Validation as a spec needs the plugins that the run was made with; most readers do not.
    """
    gates = spec.get("gates", [])
    if not (isinstance(gates, list) and all(isinstance(gate, str) for gate in gates)):
        raise ValueError("its gates are not a list of texts")
    for key in ("noise", "estimators"):
        entries = spec.get(key, [])
        if not (isinstance(entries, list) and all(_has_name(entry) for entry in entries)):
            raise ValueError(f"{key} must be a list of mappings, each with a name")
    if not all(isinstance(spec.get(key, {}), dict) for key in ("model", "dataset", "run")):
        raise ValueError("model, dataset and run must be mappings")
    return spec


def _has_name(entry: object) -> bool:
    """Whether an entry of a spec is a mapping with a name."""
    return isinstance(entry, dict) and isinstance(entry.get("name"), str)


def device_type(device: str) -> str:
    """``cpu`` or ``cuda``, from the text in run.json for one or several devices."""
    return re.split("[ :,]", device, maxsplit=1)[0]


def kind_of(device: str) -> str:
    """The device as far as noise depends on it: cpu, or cuda and the card's model."""
    kind = device_type(device)
    # On CUDA the number of multiprocessors orders torch's normal draws.
    return kind if kind == "cpu" else f"{kind} {device.partition(' ')[2]}"


Plain = Annotated[str, AfterValidator(_plain)]
# In the ranges of a result's numbers: readers square and sum them, and SQLite and NumPy hold them.
Number = Annotated[float, Field(gt=-LARGEST, lt=LARGEST)]
Whole = Annotated[int, Field(ge=0, lt=2**63)]


class RowBits(StrEnum):
    """The dependence of an image's logits on its batch.

    Attributes:
        BITWISE: no dependence: the same bits in every batch that was tried.
        ROUNDING: the last digits depend on the size of the batch.
        MIXED: the network mixes the images of a batch.
    """

    BITWISE = "bitwise"
    ROUNDING = "rounding"
    MIXED = "mixed"


class _Part(BaseModel):
    """An object in run.json."""

    # Strict: robaudit writes the exact types, so anything else is damage. Unknown keys are ignored,
    # so that a newer robaudit may add some within a schema version. "model" is a key of ours, which
    # pydantic would otherwise protect.
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, protected_namespaces=())


class QuantityInfo(_Part):
    """A quantity of the run (:class:`robaudit.quantities.Quantity`); None for an infinite end of
    its range."""

    model_config = ConfigDict(extra="forbid")
    name: Plain
    unit: Plain
    low: Number | None
    high: Number | None
    higher_is_better: bool


class ModelInfo(_Part):
    """The model as it was loaded."""

    name: str
    format: Plain
    sha256: Plain
    classes: Whole
    notes: list[str] = []


class DataInfo(_Part):
    """The data set.

    Numbers of samples and the digest are known when the run is complete.
    """

    where: str
    class_names: list[str] | None
    samples: Whole = 0
    labelled: Whole = 0
    sha256: Plain | None = None


class Rows(_Part):
    """How an image's logits depend on its batch.

    Attributes:
        kind: the kind of dependence.
        largest_difference: the largest difference of a logit between two batches, relative to the
            spread of all logits. If the run uses gradients, also of a gradient, relative to the
            spread of all gradients.
    """

    kind: Annotated[RowBits, Field(strict=False)]
    largest_difference: Number


class ShareInfo(_Part):
    """:class:`robaudit.stats.summary.Share`."""

    count: Whole
    total: Whole
    value: Number
    lower: Number
    upper: Number


class NoisyAccuracyInfo(_Part):
    """:class:`robaudit.stats.summary.NoisyAccuracy` of an estimator at a noise level."""

    estimator: Plain
    noise: Plain
    level_name: Annotated[LevelName, Field(strict=False)]
    level: Number
    images: Whole = 0
    value: Number
    lower: Number
    upper: Number
    std_error: Number = 0.0
    measured_lower: Number | None = None
    measured_upper: Number | None = None


class Totals(_Part):
    """Numbers over the whole run."""

    samples: Whole = 0
    skipped: Whole = 0
    rows: Whole = 0
    forwards: Whole = 0
    backwards: Whole = 0
    seconds: Number = 0.0


class Skip(_Part):
    """A skipped sample, and the reason.

    Attributes:
        task: the failed task, which the state has and run.json has not; None if the sample cannot
            be used at all.
    """

    sample_id: str
    reason: str
    task: tuple[NoiseLevel, str] | None = Field(default=None, exclude=True)


class Plugin(_Part):
    """The origin of an estimator that is not robaudit's own."""

    package: Plain
    version: Plain
    entry_point: Plain


class Session(_Part):
    """A call of the audit that worked on the run."""

    started: Plain
    command: Plain | None
    device: Plain
    robaudit: Plain
    workers: Whole = 1  # unset, and so omitted, with a single worker


class UntilDecided(_Part):
    """The schedule of a run that is sampled until its gates are decided
    (:mod:`robaudit.auditing.until`).

    Attributes:
        confidence: of all possible analyses together, which share the error equally.
        possible: the numbers of draws per image after which an analysis may take place, fixed in
            advance.
        draws: the numbers after which an analysis took place; in an unfinished run, the last
            analysis is under way.
        point: whether values without an interval decide.
    """

    confidence: Annotated[float, Field(gt=0.5, lt=1.0)]
    possible: Annotated[list[Annotated[int, Field(ge=1, lt=2**63)]], Field(min_length=1)]
    draws: Annotated[list[Whole], Field(min_length=1)]
    point: bool

    @model_validator(mode="after")
    def _consistent(self) -> UntilDecided:
        # The error was split over the possible analyses alone.
        if not set(self.draws) <= set(self.possible):
            raise ValueError("an analysis took place that was not possible")
        return self

    @property
    def each(self) -> float:
        """The confidence of a single analysis, so that all possible analyses hold together with
        :attr:`confidence`."""
        # Bonferroni over the possible analyses, not over those that take place: which ones do
        # depends on the results.
        return simultaneous(self.confidence, len(self.possible))

    def also(self, draws: int) -> UntilDecided:
        """The schedule with one more analysis."""
        return self.model_copy(update={"draws": [*self.draws, draws]})


class _FromSpec(_Part):
    """The part of run.json that is known from the spec alone."""

    schema_version: int
    status: Literal["running", "complete"]
    name: str
    spec: Annotated[dict[str, Any], AfterValidator(_readable)]
    spec_folder: str
    identity: Plain
    base_identity: Plain
    seed: Annotated[int, Field(ge=0, lt=2**63)]


class Measured(_Part):
    """The part of run.json that is known once the model is loaded and checked: model, device and
    environment.

    Attributes:
        rows: how an image's logits depend on its batch.
        batch_rows: images in a pass.
        precision_effect: what a lower precision changes, by noise level.
    """

    device: Plain
    versions: dict[Plain, Plain | None] = {}
    model: ModelInfo
    warnings: list[str]
    rows: Rows
    batch_rows: Whole = 0
    image_shape: list[Whole] | None = None
    precision_effect: list[dict[str, Any]] = []


class RunInfo(Measured, _FromSpec):
    """The content of run.json.

    The file has the fields of ``_FromSpec``, ``Measured`` and this class, in this order. Unset
    fields are omitted. The fields after ``until_decided`` are known when the run is complete.

    Attributes:
        spec: the spec as a document; it is validated as a spec only where one is needed.
    """

    data: DataInfo
    noise: Plain
    noise_files: dict[str, dict[str, str]] = {}
    plugins: dict[Plain, Plugin] = {}
    started: Plain = ""
    command: Plain | None = None
    sessions: list[Session] = []
    until_decided: UntilDecided | None = None
    finished: Plain = ""
    # Most of these are required of a complete run: see _OF_A_COMPLETE_RUN.
    quantities: list[QuantityInfo] = []
    clean_accuracy: ShareInfo | None = None
    noisy_accuracy: list[NoisyAccuracyInfo] = []
    totals: Totals = Totals()
    seconds: dict[Annotated[Plain, AfterValidator(_step)], Number] = {}
    skipped: list[Skip] = []
    review_warnings: list[str] = []
    files: dict[str, str] = {}

    @model_validator(mode="after")
    def _has_results_if_complete(self) -> RunInfo:
        missing = [name for name in _OF_A_COMPLETE_RUN if name not in self.model_fields_set]
        if self.complete and missing:
            raise ValueError(f"{missing[0]!r} is missing")
        return self

    @property
    def complete(self) -> bool:
        """Whether the run is finished."""
        return self.status == "complete"

    @property
    def gates(self) -> list[str]:
        """The spec's gates."""
        return list(self.spec.get("gates", ()))

    def document(self) -> dict[str, Any]:
        """The content of run.json as JSON values."""
        # An unset field is unknown, which is not the same as its default.
        return self.model_dump(mode="json", exclude_unset=True)

    @staticmethod
    def read(document: Mapping[str, Any], where: str) -> RunInfo:
        """The content of a run.json of the current schema version.

        Raises:
            RunError: a value is missing or has a type that robaudit does not write; the message
                names the first.
        """
        try:
            return RunInfo.model_validate(document)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            if first["type"] == "missing":
                problem = f"{place!r} is missing"
            else:
                # The checks of the whole object have no place.
                problem = f"{place}: {wanted(first)}".removeprefix(": ")
            raise RunError(
                where, f"is damaged ({problem})", "run the audit again in another folder"
            ) from error


# Without these a run that says it is complete would be read with their defaults.
_OF_A_COMPLETE_RUN = (
    "quantities",
    "clean_accuracy",
    "noisy_accuracy",
    "totals",
    "seconds",
    "skipped",
    "files",
)
