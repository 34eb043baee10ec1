"""The content of run.json: built by the audit, written and read by
:class:`robaudit.runs.folder.RunFolder`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from robaudit.errors import RunError
from robaudit.forms import Form, FormName, Layout
from robaudit.levels import LevelName, NoiseLevel
from robaudit.numerics.image_intervals import simultaneous
from robaudit.numerics.looks import confidence_of_each
from robaudit.results import LARGEST
from robaudit.spec.validation_errors import wanted
from robaudit.text import count, first_synonyms, printable


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
    for key in ("class_names", "class_ids"):
        if not _are_texts(spec.get("dataset", {}).get(key)):
            raise ValueError(f"dataset.{key} must be a list of texts")
    return spec


def _has_name(entry: object) -> bool:
    """Whether an entry of a spec is a mapping with a name."""
    return isinstance(entry, dict) and isinstance(entry.get("name"), str)


def _are_texts(names: object) -> bool:
    """Whether these can be the names of classes: texts, or None."""
    if names is None:
        return True
    return isinstance(names, list) and all(isinstance(name, str) for name in names)


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

    Attributes:
        class_names: by index; None where the spec has them (:attr:`RunInfo.class_names`).
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


class FormReason(StrEnum):
    """Why the network runs in its form.

    Attributes:
        SHORT: the audit was too short to repay the choice.
        FIXED: a choice by timing would change results from run to run, which ``deterministic``
            forbids, and networks that mix the images of a batch show.
        WORKERS: several workers, which all run the network as loaded.
        FASTEST: the fastest of those that were tried.
        UNAVAILABLE: the form in which the run was begun cannot be made on this machine.
    """

    SHORT = "short"
    FIXED = "fixed"
    WORKERS = "workers"
    FASTEST = "fastest"
    UNAVAILABLE = "unavailable"


class NetworkForm(_Part):
    """The form in which the network makes noisy passes, and why.

    Attributes:
        name, layout, rows: see :class:`robaudit.forms.Form`.
        reason: why this form.
        as_loaded: images per second of the network as it was loaded, without noise, where it was
            measured.
        rate: the same in this form.
        earlier: whether rows of earlier sessions were computed in another form.
    """

    name: Annotated[FormName, Field(strict=False)]
    layout: Annotated[Layout, Field(strict=False)]
    rows: Annotated[int, Field(ge=1, lt=2**31)]
    reason: Annotated[FormReason, Field(strict=False)]
    as_loaded: Number | None = None
    rate: Number | None = None
    earlier: bool = False

    @classmethod
    def of(cls, form: Form, reason: FormReason, **more: Any) -> NetworkForm:
        """A form with the reason, and further fields."""
        return cls(name=form.name, layout=form.layout, rows=form.rows, reason=reason, **more)

    @property
    def form(self) -> Form:
        """The form alone."""
        return Form(self.name, self.layout, self.rows)

    @property
    def text(self) -> str:
        """The text ``compiled, channels last, 8 images a pass: 74 images/s (44 as loaded)``."""
        if self.rate is None or self.as_loaded is None:
            return self.form.text
        return f"{self.form.text}: {self.rate:,.0f} images/s ({self.as_loaded:,.0f} as loaded)"


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


class Planned(_Part):
    """What a run will have when it is complete.

    Attributes:
        images: number of samples.
        draws: copies of each image, by the estimator's label, of those that take them in rounds.
        others: number of results of a sample from other estimators.
    """

    images: Whole
    draws: dict[Plain, Whole] = {}
    others: Whole = 0


class Reached(_Part):
    """How far an unfinished run is.

    Attributes:
        images: samples with a result.
        fewest, most: the fewest and the most copies of one of them behind results that more copies
            may still change; 0: no estimator takes copies in rounds.
        others: samples with the results of all other estimators; None: there are no others.
        even: whether all images have equally many copies, as after a round.
    """

    images: Whole
    even: bool = True
    fewest: Whole = 0
    most: Whole = 0
    others: Whole | None = None


class Stop(StrEnum):
    """Why a run was stopped before it was complete.

    Attributes:
        INTERRUPTED: by Ctrl-C.
        TIME: its budget of time was over.
        DECIDED: its gates were decided.
        UNDECIDED: no more copies would decide its gates for the population.
    """

    INTERRUPTED = "interrupted"
    TIME = "time"
    DECIDED = "decided"
    UNDECIDED = "undecided"


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


# Of two possible analyses, as a share of the later one's draws: 65,536 and 65,537 are the closest.
_CLOSEST = 2.0**-17


class UntilDecided(_Part):
    """The schedule of a run that is sampled until its gates are decided
    (:mod:`robaudit.auditing.until`).

    Attributes:
        confidence: of all possible analyses together.
        possible: the numbers of draws per image after which an analysis may take place, fixed in
            advance.
        growths: how often the sample may be doubled after an analysis, also fixed in advance.
        draws: the numbers after which an analysis took place.
        point: whether values without an interval decide.
    """

    confidence: Annotated[float, Field(gt=0.5, lt=1.0)]
    possible: Annotated[
        list[Annotated[int, Field(ge=1, lt=2**53)]], Field(min_length=1, max_length=64)
    ]
    growths: Annotated[int, Field(ge=0, le=64)] = 0
    draws: list[Whole]
    point: bool

    @model_validator(mode="after")
    def _consistent(self) -> UntilDecided:
        # The error was spent on the possible analyses alone.
        if not set(self.draws) <= set(self.possible):
            raise ValueError("an analysis took place that was not possible")
        if self.possible != sorted(set(self.possible)):
            raise ValueError("the possible analyses are not in ascending order")
        # Their confidence takes the longer, the closer they are: a stranger's could take days.
        if any(later - earlier < _CLOSEST * later for earlier, later in pairwise(self.possible)):
            raise ValueError("possible analyses are too close together")
        return self

    @property
    def each(self) -> float:
        """The confidence of a single analysis, so that all possible analyses hold together with
        :attr:`confidence`."""
        return self.each_of(1)

    def each_of(self, number: int) -> float:
        """The confidence of each of ``number`` intervals of an analysis, so that the intervals of
        all possible analyses hold together."""
        # Over the possible analyses, not over those that take place: which ones do depends on the
        # results. Twice as many images are at least as much information as twice as many draws.
        last = self.possible[-1]
        grown = [last * 2**growth for growth in range(1, self.growths + 1)]
        # The intervals of an analysis share the error first: each is then one of a growing sample.
        confidence = simultaneous(self.confidence, number)
        return confidence_of_each(confidence, (*self.possible, *grown))

    def also(self, draws: int) -> UntilDecided:
        """The schedule with one more analysis."""
        if self.draws and self.draws[-1] == draws:
            return self
        return self.model_copy(update={"draws": [*self.draws, draws]})


class _FromSpec(_Part):
    """The part of run.json that is known from the spec alone."""

    schema_version: int
    status: Literal["running", "stopped", "complete"]
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
        form: of the network in noisy passes; None before it is chosen.
        precision_effect: what a lower precision changes, by noise level.
    """

    device: Plain
    versions: dict[Plain, Plain | None] = {}
    model: ModelInfo
    warnings: list[str]
    rows: Rows
    batch_rows: Whole = 0
    form: NetworkForm | None = None
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
    planned: Planned | None = None
    until_decided: UntilDecided | None = None
    stopped: Annotated[Stop | None, Field(strict=False)] = None
    reached: Reached | None = None
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
        if self.has_outputs and missing:
            raise ValueError(f"{missing[0]!r} is missing")
        return self

    @property
    def complete(self) -> bool:
        """Whether the run is finished."""
        return self.status == "complete"

    @property
    def is_between_looks(self) -> bool:
        """Whether a run was stopped, or is read, between two of the analyses that it is sampled
        for."""
        return self.until_decided is not None and not (self.reached is None or self.reached.even)

    @property
    def images_to_come(self) -> int:
        """The number of images without any result, of a run that is not complete."""
        if self.planned is None or self.reached is None:
            return 0
        return max(0, self.planned.images - self.reached.images - len(self.skipped))

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Class names by index, each by its first synonym; None if the data set has none."""
        dataset = self.spec.get("dataset", {})
        names = self.data.class_names or dataset.get("class_names")
        if not names:
            return None
        ids = dataset.get("class_ids")
        return first_synonyms(names, ids if ids and len(ids) == len(names) else None)

    @property
    def flag(self) -> float | None:
        """The spec's flag: images on one side of it took no more copies."""
        flag = self.spec.get("flag")
        return flag if isinstance(flag, float) else None

    @property
    def has_outputs(self) -> bool:
        """Whether the outputs are written, and their digests known: the run is complete, or was
        stopped in good order."""
        return self.status != "running"

    @property
    def how_far(self) -> str:
        """How far an unfinished run is: ``32 of 1,000 copies of each of 500 images``; empty of a
        complete run."""
        if self.reached is None or self.planned is None:
            return ""
        reached = self.reached
        planned = self.planned
        images = count(planned.images, "image")
        others = f"{reached.others or 0:,} of {images}"
        if not planned.draws:
            return others
        if reached.images < planned.images:
            images = f"{reached.images:,} of {images}"
        copies = f"{reached.most:,}"
        if reached.fewest < reached.most:
            copies = f"{reached.fewest:,} to {copies}"
        in_rounds = f"{copies} of {max(planned.draws.values()):,} copies of each of {images}"
        return in_rounds if reached.others is None else f"{in_rounds}; other estimators: {others}"

    @property
    def notices(self) -> list[str]:
        """The warnings, preceded by how far an unfinished run is: what every view says first.

        A run whose gates are decided has all that it was made for.
        """
        if self.complete or self.stopped is Stop.DECIDED:
            return self.warnings
        return [self.so_far, *self.warnings]

    @property
    def so_far(self) -> str:
        """How far a run is that is not complete, and why it is not: ``32 of 1,000 copies of each of
        500 images (interrupted)``."""
        why = {
            None: "unfinished",
            Stop.INTERRUPTED: "interrupted",
            Stop.TIME: "its time was over",
            Stop.DECIDED: "its gates were decided",
            Stop.UNDECIDED: "more copies would not decide its gates",
        }
        return f"{self.how_far or 'part of the results'} ({why[self.stopped]})"

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


# Without these a run that says it has outputs would be read with their defaults.
_OF_A_COMPLETE_RUN = (
    "quantities",
    "clean_accuracy",
    "noisy_accuracy",
    "totals",
    "seconds",
    "skipped",
    "files",
)
