"""`python -m tests.research.verdict [PARTS]`: what a verdict costs, beside 1,000 copies of each
image and the published 10,000.

Run on a quiet machine, about two hours on two cores. Writes its sections of benchmarks.md and
benchmarks.json into `--out`; without it, prints them. The long audits behind the truth are kept in
`--cache`, and continued there after an interruption.

- `gates`: passes and seconds until gates are decided.
- `lists`: passes for the list of images below .5.
- `looks`: how often intervals miss and gates err, over all looks.
- `drawn`: the same for all networks, with votes that are drawn at the truth.
- `kills`: audits killed at random moments, and read.
- `command`: seconds of `robaudit estimate --gate`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from tests.research.benchmarks.machine import machine
from tests.research.benchmarks.report import Section, write
from tests.research.verdict import command, drawn, gates, kills, lists, looks
from tests.research.verdict.pairs import IMAGES, MOST, Pair, pairs
from tests.shared import SHARED

WATCHED = ("mnist_spectral_mlp", "fashion_logistic")
"""Fast networks, for many audits with all copies."""
WATCHED_IMAGES = 100
WATCHED_TRUTH = 100_000
"""Copies: the truth must be known ten times better than the last of the looks measures it."""
WHOLE_TRUTH = 200
"""Copies of each image of the whole data set."""


@dataclass(frozen=True, slots=True)
class Work:
    """What the command line says.

    Attributes:
        pairs: network and noise.
        cache: the folder of long audits.
        seeds: audits of each kind in `looks`.
        reads: number of reads of killed audits, of each kind.
    """

    pairs: Sequence[Pair]
    cache: Path
    seeds: int
    reads: int


def of_gates(work: Work) -> Section:
    """Part `gates`."""
    tables = []
    targets = []
    raw = {}
    for question in gates.QUESTIONS:
        lines = []
        for pair in work.pairs:
            line = gates.line(question, pair, work.cache)
            if line is not None:
                lines.append(line)
                raw[f"{question.text}: {pair.name}"] = [asdict(one) for one in line.verdicts]
                _say(f"{question.text}: {line.row()}")
        if lines:
            tables.append(gates.table(question, lines))
            targets += gates.targets(question, lines)
    return Section(
        title="What a verdict on a gate costs (cpu)",
        reading=(
            f"Audits that end when their gate is decided, with a threshold below the truth and one "
            f"above it, each with five seeds (ImageNet: one). Of {IMAGES} images (ImageNet: 200 "
            "photos), medians. Passes: all forward passes, those of the images without noise "
            "included, beside those of as many copies of each image. Audits for images like these "
            "begin with a random subset of the data set, and double it where more copies are no "
            "help. Seconds: model and input checks included, the start of the process not; of "
            "1,000 copies: their passes alone, at the speed of a long audit."
        ),
        tables=tables,
        targets=targets,
        notes=[
            "The truth is the mean over many copies: 4,000 of each image (`cifar10_resnet20`: "
            "1,000, ImageNet: 64); for images like these 16 of each image of the whole data set.",
            "`right / open / wrong`: verdicts of all audits.",
        ],
        raw=raw,
    )


def of_lists(work: Work) -> Section:
    """Part `lists`."""
    lines = []
    for pair in work.pairs:
        # All copies of the photos take an hour and a half.
        line = lists.line(pair, work.cache, beside_all=pair.by_class)
        _say(f"list: {line.row()}")
        lines.append(line)
    return Section(
        title="What the list of the least robust images costs (cpu)",
        reading=(
            "Audits with `flag: 0.5` and up to 1,000 copies of each image, beside audits with "
            "1,000 copies of each image and the same noise. Confirmed: the image's interval lies "
            "below .5."
        ),
        tables=[lists.table(lines)],
        targets=lists.targets(lines),
        notes=[
            "The intervals of the audit with a flag hold at all rounds together, so they are wider "
            "than those of 1,000 copies: an image just below .5 may be confirmed by these only.",
            "`wrong`: confirmed, but above .5 by the copies behind the truth.",
        ],
        raw={line.pair: asdict(line) for line in lines},
    )


def of_looks(work: Work) -> Section:
    """Part `looks`."""
    found = []
    for pair in work.pairs:
        if not pair.name.startswith(WATCHED):
            continue
        whole = replace(pair, whole_draws=WHOLE_TRUTH)
        first = whole.first(WATCHED_IMAGES, truth_draws=WATCHED_TRUTH)
        found += looks.of_these_images(first, work.cache, work.seeds)
        found.append(looks.of_the_population(whole, work.cache, work.seeds, WATCHED_IMAGES))
        found.append(looks.growing(whole, work.cache, work.seeds, WATCHED_IMAGES))
        for errors in found[-4:]:
            _say(f"looks: {errors.row()}")
    return Section(
        title="Verdicts at any look (cpu)",
        reading=(
            f"Audits with other noise each, of the first {WATCHED_IMAGES} images or of as many at "
            f"random, and with an analysis after each round up to {MOST:,} copies. Missed: some "
            "look's interval, at the confidence of each look, does not contain the truth; at most "
            "5 % of the audits should. A gate is wrong where the first look that decides it "
            "decides wrongly; each distance counts a gate on either side. In the last rows the "
            f"images double, with up to {looks.GROWING_DRAWS} copies of each, until a gate at the "
            "truth is decided or no image is left."
        ),
        tables=[looks.table(found)],
        notes=[
            f"The truth: {WATCHED_TRUTH:,} copies of each image; for the population "
            f"{WHOLE_TRUTH} of each image of the whole test set.",
        ],
        raw={errors.name: asdict(errors) for errors in found},
    )


def of_drawn(work: Work) -> Section:
    """Part `drawn`."""
    found = []
    for pair in work.pairs:
        if not pair.by_class:
            continue
        found += drawn.of_these_images(pair, work.cache, work.seeds)
        found.append(drawn.of_the_population(pair, work.cache, work.seeds, IMAGES))
        for one in found[-3:]:
            _say(f"drawn: {one.row()}")
    return Section(
        title="Verdicts at any look, with votes drawn at the truth",
        reading=(
            f"{work.seeds} audits each, with an analysis after each round up to {MOST:,} copies. "
            "The probabilities of the images are those that long audits of the networks found; "
            "votes are drawn from them, and analysed as in an audit. Missed: some look's interval "
            "does not contain the truth; at most 5 % of the audits should. A gate is wrong where "
            "the first look that decides it decides wrongly; each distance counts a gate on either "
            "side."
        ),
        tables=[looks.table(found)],
        raw={one.name: asdict(one) for one in found},
    )


def of_kills(work: Work) -> Section:
    """Part `kills`."""
    pair = work.pairs[0]
    found = []
    for again in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            killed = kills.kills(pair.document(), Path(folder), work.reads, again=again)
        for error in killed.errors:
            _say(error)
        found.append(killed)
    return Section(
        title="Audits that are killed (cpu)",
        reading=(
            f"`robaudit estimate` of {pair.name} killed with SIGKILL at random moments, and its "
            "folder read by `robaudit show` after each kill, and before every other one. Errors: "
            "an exit code of either command, or an output with other bytes than that of an audit "
            "that was not killed."
        ),
        tables=[kills.table(found)],
        raw={killed.name: asdict(killed) for killed in found},
    )


def of_command(work: Work) -> Section:
    """Part `command`."""
    found = []
    for pair in work.pairs:
        if not pair.by_class:
            found += command.timed(pair, work.cache)
    return Section(
        title="From the command line to a verdict (cpu)",
        reading="`robaudit estimate SPEC --gate GATE`, its imports, the loading of the network and "
        "the checks of the input included.",
        tables=[command.table(found)],
        targets=command.targets(found),
        raw={one.gate: asdict(one) for one in found},
    )


PARTS: dict[str, Callable[[Work], Section]] = {
    "gates": of_gates,
    "lists": of_lists,
    "looks": of_looks,
    "drawn": of_drawn,
    "kills": of_kills,
    "command": of_command,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Do each part and write its section."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.research.verdict",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PARTS", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--only", default="", help="pairs with this in their name")
    parser.add_argument("--seeds", type=int, default=200, help="audits of each kind in looks")
    parser.add_argument("--reads", type=int, default=100, help="of killed audits, each kind")
    cache = Path(tempfile.gettempdir()) / "robaudit-verdict"
    parser.add_argument("--cache", type=Path, default=cache, help="folder of the long audits")
    parser.add_argument("--out", type=Path, help="folder of the report; default: print it")
    given = parser.parse_args(arguments)
    parts = given.parts or list(PARTS)
    unknown = set(parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}")
    if not SHARED.is_dir():
        parser.error(f"{SHARED} is not there; it has the networks and images that are measured")
    chosen = list(pairs(given.only))
    if not chosen:
        parser.error(f"no pair has {given.only} in its name")
    given.cache.mkdir(parents=True, exist_ok=True)
    work = Work(chosen, given.cache, given.seeds, given.reads)
    for name, section in _sections(parts, work):
        if given.out is None:
            _say(section.markdown())
        else:
            write(given.out, {f"{name}-cpu": section})


def _sections(parts: Sequence[str], work: Work) -> Iterator[tuple[str, Section]]:
    """The section of each part, with the machine that measured it."""
    for part in parts:
        section = PARTS[part](work)
        yield part, replace(section, machine=machine(torch.device("cpu")))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    # Of torch.jit.load, for each of the shared networks.
    warnings.filterwarnings("ignore", category=FutureWarning)
    main()
