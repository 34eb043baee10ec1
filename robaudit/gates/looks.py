"""How many draws does it take to decide the gates: look after few, go on with more until they are decided or all are drawn?"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robaudit.errors import RunError
from robaudit.files import json_bytes, read_json, write_atomically
from robaudit.gates.decide import decide
from robaudit.gates.formats import Subject, decisions_document
from robaudit.gates.grammar import Gate
from robaudit.gates.result import Decision
from robaudit.identity import identity
from robaudit.run_folder import RunFolder, label_of
from robaudit.runs import Run, read_run
from robaudit.spec import AuditSpec

RECORD = "gates.json"
FIRST, SHARE = 64, 16
"""Draws at the first look: so many, or this part of all."""

_SLACK = 1.1  # of what a look says is lacking
_DRAWS = 10_000  # mc's default


@dataclass(frozen=True, slots=True)
class Look:
    """One look.

    Attributes:
        draws: noisy copies of an image so far asked for.
        run: all results with them.
        decisions: of all gates.
    """

    draws: int
    run: Run
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class Sampled:
    """What came of it.

    Attributes:
        looks: the looks, in order; a run that was decided before has only its last.
        most: draws of an image that were allowed.
        drawn: draws of an image that all looks took together.
    """

    looks: tuple[Look, ...]
    most: int
    drawn: int

    @property
    def last(self) -> Look:
        """The look that decided."""
        return self.looks[-1]


def most_draws(spec: AuditSpec, limit: int | None = None) -> int:
    """Draws of an image by the mc with a fixed number of them (the largest of several); 0 where the spec has none."""
    found = [_samples(entry) for entry in spec.document()["estimators"] if _fixed(entry)]
    return min([max(found), *([] if limit is None else [limit])]) if found else 0


def possible_looks(most: int) -> tuple[int, ...]:
    """The draws after which one may look: a sixteenth of all, at least 64, and twice as many each time; last, all. At most five.

    They are fixed beforehand, and the error is split over all of them, those that are passed over included: so an interval holds
    whichever look it is that the looks before have led to.
    """
    looks = [min(most, max(FIRST, -(-most // SHARE)))]
    while looks[-1] < most:
        looks.append(min(most, 2 * looks[-1]))
    return tuple(looks)


def next_draws(draws: int, most: int, decisions: Sequence[Decision]) -> int:
    """Draws at the next look: the first of the possible ones at which the gates have what they lack, and a little more."""
    lacking = max((one.more for one in decisions if one.verdict == "inconclusive" and one.more is not None), default=0)
    return next(look for look in possible_looks(most) if look > draws and (look >= draws + _SLACK * lacking or look == most))


def sample_until_decided(
    spec: AuditSpec,
    gates: Sequence[Gate],
    out: Path,
    audit: Callable[[AuditSpec, Path], Run],
    *,
    limit: int | None = None,
    point: bool = False,
    confidence: float = 0.95,
    told: Callable[[Look, int], None] | None = None,
) -> Sampled:
    """Audit with few draws, and with more until every gate on mc is decided, or one fails, or all draws of the spec are taken.

    The error is split over the :func:`possible_looks`: each is at 1 - (1 - confidence)/looks, so that all intervals of a gate hold
    together with ``confidence``, however often one looks and whatever the looks have in common. Gates on other
    results are decided once, at ``confidence``. Each look is an ordinary run in ``OUT.looks/``; the last becomes ``out``.

    Args:
        spec: what is asked; ``samples`` of its mc is the most.
        gates: to be decided.
        out: the run folder.
        audit: makes or resumes the run of a spec in a folder.
        limit: fewer draws than the spec's.
        point, confidence: see :func:`robaudit.gates.decide.decide`.
        told: hears of each look.

    Raises:
        RobauditError: the audit or a gate is refused; or ``out`` holds another run.
    """
    most = most_draws(spec, limit)
    possible = possible_looks(most) if most else (0,)
    each = 1.0 - (1.0 - confidence) / len(possible)
    asked = {"identity": identity(spec.document()), "gates": [str(gate) for gate in gates], "confidence": confidence, "most": most}
    if out.name in ("", ".."):
        raise RunError(str(out), "cannot be made a run folder", "give --out a name")
    RunFolder(out).check()
    before = _before(out, asked)
    beside = out.with_name(out.name + ".looks")
    sampled = {label_of(entry) for entry in spec.document()["estimators"] if _fixed(entry)}

    def look(draws: int, folder: Path) -> Look:
        run = audit(with_draws(spec, draws) if most else spec, folder)
        decisions = decide(run, gates, point=point, confidence=each)
        settled = [one.gate.estimator not in sampled for one in decisions]
        once = decide(run, gates, point=point, confidence=confidence) if any(settled) else decisions
        return Look(draws, run, tuple(b if fixed else a for a, b, fixed in zip(decisions, once, settled, strict=True)))

    if before is not None:
        found = look(before["draws"][-1], out)
        _remove(beside)
        return Sampled((found,), most, sum(before["draws"]))
    looks: list[Look] = []
    draws = possible[0]
    while True:
        looks.append(look(draws, beside / f"{draws}"))
        if told is not None:
            told(looks[-1], most)
        now = looks[-1].decisions
        still = [one for one in now if one.verdict == "inconclusive" and one.gate.estimator in sampled]
        if draws >= most or not still or any(one.verdict == "fail" for one in now):
            break
        draws = next_draws(draws, most, still)
    last = looks[-1]
    record = {
        "asked": asked,
        "each": each,
        "draws": [one.draws for one in looks],
        **decisions_document(last.decisions, Subject.of(last.run.info, "estimate")),
    }
    write_atomically(last.run.path / RECORD, json_bytes(record))
    try:
        last.run.path.rename(out)
    except OSError as error:
        raise RunError(str(out), f"cannot be made a run folder: {error.strerror or error}", "choose another --out") from error
    _remove(beside)
    return Sampled((*looks[:-1], Look(last.draws, read_run(out), last.decisions)), most, sum(one.draws for one in looks))


def confidence_of_looks(folder: Path) -> float | None:
    """The confidence at which a run that was sampled until gates were decided is to be read: that of one look; None for other runs.

    Raises:
        RunError: what it says of its looks is damaged.
    """
    if not (folder / RECORD).exists():
        return None
    record = read_json(folder / RECORD)
    each = record.get("each") if isinstance(record, dict) else None
    if not isinstance(each, float) or not 0.5 < each < 1.0:
        raise RunError(str(folder / RECORD), "is damaged", "sample again in another folder, or give --confidence")
    return each


def with_draws(spec: AuditSpec, draws: int) -> AuditSpec:
    """The spec with no more draws of mc than these."""
    document = spec.document()
    for entry in document["estimators"]:
        if _fixed(entry):
            entry["options"]["samples"] = min(_samples(entry), draws)
    return AuditSpec.model_validate(document).located(spec.base_dir, spec.name)


def _fixed(entry: Mapping[str, Any]) -> bool:
    options = entry["options"]
    return entry["name"] == "mc" and options.get("tolerance") is None and options.get("decide") is None


def _samples(entry: Mapping[str, Any]) -> int:
    return int(entry["options"].get("samples", _DRAWS))


def _before(out: Path, asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a finished run of this kind in ``out`` says; None where there is no run.

    Raises:
        RunError: it is another run.
    """
    if not RunFolder(out).exists:
        return None
    record = read_json(out / RECORD) if (out / RECORD).exists() else None
    if isinstance(record, dict) and record.get("asked") == asked:
        drawn = record.get("draws")
        if isinstance(drawn, list) and drawn and all(type(n) is int and n > 0 for n in drawn):
            return record
        raise RunError(str(out / RECORD), "is damaged", "sample again in another folder")
    what = "was sampled for other gates" if record is not None else "holds a run that was not sampled for gates"
    raise RunError(str(out), what, "decide gates on it with robaudit gate, or choose another --out")


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):  # nothing of value is in it: the last look has left it
        shutil.rmtree(folder)
