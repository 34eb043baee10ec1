"""The options of robaudit, each declared once: its flag, its Python argument, its place in the
spec, and its help.

The command line builds its options from :class:`Setting`, :func:`robaudit.audit` finds in it the
place of each argument, and messages name settings, so that every door says them in its own words::

    raise RunError(str(folder), "there is no run to extend", "leave " + EXTEND + " out")

prints ``leave --extend out`` on the command line, and ``leave extend=True out`` in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


class Wording(str):
    """A message that names settings.

    As a string it has the words of the command line. ``+`` makes one and keeps both texts.
    f-strings and methods of ``str`` keep the command line's alone.

    Args:
        text: in the words of the command line.
        python: the same in the words of Python.
    """

    python: str

    def __new__(cls, text: str, python: str) -> Wording:
        """The two texts as one message."""
        wording = super().__new__(cls, text)
        wording.python = python
        return wording

    def __reduce__(self) -> tuple[type[Wording], tuple[str, str]]:
        """For workers in other processes, which send their errors."""
        return Wording, (str(self), self.python)

    # Typed as str, so that messages may be assembled from both kinds of text.
    def __add__(self, other: str | Setting) -> str:
        after = worded(other)
        return Wording(str(self) + str(after), self.python + in_python(after))

    # Called before str's own addition, because a wording is no plain str.
    def __radd__(self, other: str) -> str:
        return Wording(other + str(self), in_python(other) + self.python)

    def map(self, change: Callable[[str], str]) -> Wording:
        """Both texts after the same change, such as clipping."""
        return Wording(change(str(self)), change(self.python))


@dataclass(frozen=True, slots=True)
class Setting:
    """An option with its names at the doors: the command line, Python, the spec.

    Attributes:
        argument: the Python argument.
        help: the line on the command's help page.
        place: the key of the spec that it sets; empty: none.
        flag: the command line's option; default: the argument's name with dashes.
        short: a second flag of one letter.
        metavar: stands for the value on help pages; None: typer chooses.
        panel: the group on help pages.
        least: the smallest number.
        switch: whether it is on or off.
    """

    argument: str
    help: str = ""
    place: tuple[str | int, ...] = ()
    flag: str = ""
    short: str = ""
    metavar: str | None = None
    panel: str | None = None
    least: int | None = None
    switch: bool = False

    def __post_init__(self) -> None:
        # Python's names of keywords end in an underscore: with_ is --with.
        if not self.flag:
            object.__setattr__(self, "flag", "--" + self.argument.strip("_").replace("_", "-"))

    @property
    def words(self) -> str:
        """Its name in messages."""
        return Wording(self.flag, f"{self.argument}=True" if self.switch else self.argument)

    @property
    def place_words(self) -> str:
        """Its name as the place of an error, where a switch has no value."""
        return Wording(self.flag, self.argument)

    def set_to(self, value: str) -> str:
        """Its name with a value: ``--on-error skip``, in Python ``on_error='skip'``."""
        return Wording(f"{self.flag} {value}", f"{self.argument}={value!r}")

    def __add__(self, other: str | Setting) -> str:
        return self.words + other

    def __radd__(self, other: str) -> str:
        return other + self.words


def worded(text: str | Setting) -> str:
    """The words for a setting; a text as it is."""
    return text.words if isinstance(text, Setting) else text


def in_python(text: str) -> str:
    """A message in the words of Python."""
    return text.python if isinstance(text, Wording) else text


def changed(text: str | Setting, change: Callable[[str], str]) -> str:
    """A message after a change such as clipping, in the words of every door."""
    text = worded(text)
    return text.map(change) if isinstance(text, Wording) else change(text)


def joined(separator: str, texts: Iterable[str]) -> str:
    """``separator.join(texts)`` in the words of every door."""
    texts = list(texts)
    return Wording(separator.join(texts), separator.join(map(in_python, texts)))


ESTIMATE: str = Wording("robaudit estimate ", "")
"""The command before one of its options, where another command prints the message."""

IN_INIT: str = Wording(" (robaudit init --resize 256 --crop 224)", "")
"""How `robaudit init` gets photos of one size, where another command prints the message."""

# Groups of options on the help pages.
RESULTS = "Which results"
GATES = "Gates"
SPEC = "The spec"
RUNNING = "How it runs"
OUTPUT = "Output"
RAY = "Ray"
SECTION_CLASSES = "Section classes"
SECTION_FLAGGED = "Sections flagged and sample"

# What an audit computes.
SIGMAS = Setting(
    "sigma",
    "Standard deviation of the noise, for example 0.05 or 8/255, instead of the spec's "
    "(repeatable).",
    place=("noise", 0, "sigma"),
    metavar="X",
    panel=SPEC,
)
NOISES = Setting(
    "noise",
    "Only this noise of the spec, by its label (repeatable).",
    place=("noise",),
    metavar="NAME",
    panel=SPEC,
)
LEVELS = Setting(
    "level",
    "Level of the noise (photons, severity, ...) instead of the spec's (repeatable).",
    metavar="X",
    panel=SPEC,
)
ESTIMATORS = Setting(
    "estimators",
    "Estimator instead of the spec's (repeatable).",
    place=("estimators",),
    flag="--estimator",
    metavar="NAME",
    panel=SPEC,
)
SET = Setting(
    "set",
    "Set any value of the spec, for example run.seed=3 or model.mean=[0.5] (repeatable).",
    metavar="KEY=VALUE",
    panel=SPEC,
)
LIMIT = Setting(
    "limit",
    "Audit only the first N samples.",
    place=("dataset", "limit"),
    metavar="N",
    panel=SPEC,
    least=1,
)
SEED = Setting(
    "seed", "Seed of the noise.", place=("run", "seed"), metavar="N", panel=SPEC, least=0
)
AS_GIVEN = Setting(
    "as_given",
    "Accept input that cannot be meant, such as pixels of 0 to 255 or sigma 8, with a warning.",
    place=("run", "as_given"),
    panel=SPEC,
    switch=True,
)
TRUST = Setting(
    "trust",
    "Allow Python code that the spec names (module:function), and every operator in a model file.",
    panel=SPEC,
    switch=True,
)

# Keys of the spec that Python sets by arguments, and the command line by --set. They have no help,
# because no help page shows them.
MEAN = Setting("mean", place=("model", "mean"))
STD = Setting("std", place=("model", "std"))
MODEL_OUTPUT = Setting("output", place=("model", "output"))
CLASS_NAMES = Setting("class_names", place=("dataset", "class_names"))
PRECISION = Setting("precision", place=("run", "precision"))
BATCH_SIZE = Setting("batch_size", place=("run", "batch_size"))
NAME = Setting("name", place=("name",))

# How an audit runs.
DEVICE = Setting(
    "device",
    "cpu, cuda, cuda:1, several as cuda:0,cuda:1 or cuda:all, or auto.",
    place=("run", "device"),
    metavar="DEVICE",
    panel=RUNNING,
)
FLAG = Setting(
    "flag",
    "Take no more noisy copies of an image that is certain to lie on one side of this probability. "
    "For lists of images (flag-samples); means need all copies.",
    place=("flag",),
    metavar="X",
    panel=SPEC,
)
BUDGET = Setting(
    "budget",
    "End after this time, with the results that are there by then: 90s, 10m, 2h, 1h30m.",
    metavar="DURATION",
    panel=RUNNING,
)
MEMORY = Setting(
    "memory",
    "Limit main memory, for example 4GB. Default: what is free.",
    place=("run", "memory"),
    metavar="SIZE",
    panel=RUNNING,
)
DETERMINISTIC = Setting(
    "deterministic",
    "Make runs agree bit for bit: deterministic algorithms on CUDA, and the network as it was "
    "loaded, since faster forms are chosen by timing.",
    place=("run", "deterministic"),
    panel=RUNNING,
    switch=True,
)
ON_ERROR = Setting(
    "on_error",
    "What to do at an unreadable sample: stop, or skip and list it. It is an error to skip more "
    "than a tenth of all samples, or than the share that is given here, such as 0.5.",
    metavar="stop|skip|SHARE",
    panel=RUNNING,
)
ENGINE = Setting(
    "engine",
    "Compute on this machine, or with the workers of a Ray cluster.",
    place=("run", "engine"),
    panel=RAY,
)
RAY_ADDRESS = Setting(
    "ray_address",
    "With --engine ray: the head node, or auto. Default: RAY_ADDRESS, or this machine alone.",
    metavar="HOST:PORT",
    panel=RAY,
)
WORKERS = Setting(
    "workers",
    "With --engine ray: number of workers. Default: as many as fit.",
    place=("run", "workers"),
    metavar="N",
    panel=RAY,
    least=1,
)
GPUS_PER_WORKER = Setting(
    "gpus_per_worker",
    "With --engine ray: GPUs of each worker. Default: 1 where the cluster has any.",
    place=("run", "gpus_per_worker"),
    metavar="X",
    panel=RAY,
    least=0,
)

# Where results go.
OUT = Setting(
    "out",
    "Run folder. Default: runs/<spec name>-<hash8>.",
    short="-o",
    metavar="DIR",
    panel=OUTPUT,
)
EXTEND = Setting(
    "extend",
    "Extend an existing run by a larger limit, more noise levels or more estimators.",
    panel=OUTPUT,
    switch=True,
)
FRESH = Setting(
    "fresh",
    "Refuse a run folder that exists already. For pipelines.",
    panel=OUTPUT,
    switch=True,
)
REPORT = Setting(
    "report",
    "Also write the report: .html, or .md (repeatable).",
    metavar="FILE",
    panel=OUTPUT,
)
JUNIT = Setting(
    "junit",
    "Also write the gates as JUnit XML; without --gate those of the spec, decided after the audit.",
    metavar="FILE",
    panel=OUTPUT,
)
OUTPUT_FILE = Setting(
    "output",
    "Write to this file instead of standard output.",
    short="-o",
    metavar="FILE",
    panel=OUTPUT,
)
FORMAT = Setting("format", "Output format.", panel=OUTPUT)
QUIET = Setting("quiet", "Print only warnings and errors.", short="-q", panel=OUTPUT, switch=True)

# Gates.
GATE = Setting(
    "gates",
    'A condition to meet: "mean(sigma=0.05) >= 0.9" (repeatable).',
    place=("gates",),
    flag="--gate",
    metavar="GATE",
    panel=GATES,
)
UNTIL_DECIDED = Setting(
    "until_decided",
    "Sample until the gates are decided: --gate's (which implies this) or the spec's.",
    panel=GATES,
    switch=True,
)
POPULATION = Setting(
    "population",
    "Decide for the population that these images are a sample of, not for these images only.",
    panel=GATES,
    switch=True,
)
POINT = Setting(
    "point",
    "Let values whose interval does not cover their whole error decide a gate.",
    panel=GATES,
    switch=True,
)
INCONCLUSIVE = Setting(
    "inconclusive",
    "How to count an inconclusive gate. Default: inconclusive (exit code 4).",
    panel=GATES,
)
CONFIDENCE = Setting(
    "confidence",
    "Confidence level of the intervals. Default: 0.95.",
    metavar="P",
    panel=GATES,
)
STRICT = Setting(
    "strict",
    "Fail if the run has warnings (adds the gate warnings <= 0).",
    panel=GATES,
    switch=True,
)

# Which results of a run are shown, and how. Some have the flag of a setting above: there it
# replaces levels or estimators of the spec, here it chooses among results.
ESTIMATOR = Setting(
    "estimator",
    "Only this estimator, or one of its results: NAME:q=100 (repeatable).",
    metavar="NAME",
    panel=RESULTS,
)
NOISE = Setting(
    "noise", "Only this noise, by its label (repeatable).", metavar="NAME", panel=RESULTS
)
LEVEL = Setting(
    "level",
    "Only this noise level, in its own unit: photons, severity, ... (repeatable).",
    metavar="X",
    panel=RESULTS,
)
SIGMA = Setting(
    "sigma",
    "Only this sigma, for example 0.05 or 8/255 (repeatable).",
    metavar="X",
    panel=RESULTS,
)
THRESHOLD = Setting(
    "threshold",
    "Samples with a value below this are not robust (above it, for losses). Default: the "
    "quantity's own; 0.5 for probabilities (in lists of samples the run's flag; by class 0.9).",
    metavar="X",
    panel=RESULTS,
)
WITH = Setting(
    "with_",
    "Show this run side by side with RUN (repeatable).",
    metavar="RUN",
    panel=RESULTS,
)
LABEL = Setting(
    "label",
    "Name of the first run; repeat for the others.",
    metavar="NAME",
    panel=RESULTS,
)
BY = Setting(
    "by",
    "Group samples by their label, the predicted class, or a column of the data set. Default: "
    "label, where there are labels.",
    metavar="label|predicted|COLUMN",
    panel=SECTION_CLASSES,
)
BOTTOM = Setting(
    "bottom",
    "List the N least robust samples, whether or not they are below the threshold.",
    metavar="N",
    panel=SECTION_FLAGGED,
    least=1,
)
ONLY = Setting(
    "only",
    "Only samples classified correctly, or wrongly, without noise.",
    panel=SECTION_FLAGGED,
)
ID = Setting(
    "id",
    "sample: this image, with its intervals (repeatable).",
    metavar="ID",
    panel=SECTION_FLAGGED,
)
TITLE = Setting(
    "title",
    "A title in place of the figure's own. Empty: none.",
    metavar="TEXT",
)
WIDTH = Setting(
    "width",
    "Width of the figure: 3.3 is a column of a paper, with letters of 7 points.",
    metavar="INCHES",
)

AUDIT = (
    *(SIGMAS, NOISES, LEVELS, ESTIMATORS, SET, LIMIT, SEED, AS_GIVEN, TRUST),
    *(MEAN, STD, MODEL_OUTPUT, CLASS_NAMES, PRECISION, BATCH_SIZE, NAME),
    FLAG,
    *(DEVICE, BUDGET, MEMORY, DETERMINISTIC, ON_ERROR),
    *(ENGINE, RAY_ADDRESS, WORKERS, GPUS_PER_WORKER),
    *(OUT, EXTEND, FRESH, REPORT, JUNIT, QUIET),
    *(GATE, UNTIL_DECIDED, POPULATION, POINT, INCONCLUSIVE, CONFIDENCE, STRICT),
)
"""The settings of an audit: of ``robaudit estimate`` and of :func:`robaudit.audit`."""
