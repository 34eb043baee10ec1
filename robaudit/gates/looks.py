"""How many draws does it take to decide the gates: look after few, go on with more until they are decided or all are drawn?"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robaudit.errors import RunError
from robaudit.gates.decide import decide
from robaudit.gates.grammar import Gate
from robaudit.gates.record import Asked, Decided, Looks, RunOf, read_looks, sampled_for_others, write_looks
from robaudit.gates.result import Decision
from robaudit.gates.schedule import next_draws, possible_looks
from robaudit.identity import identity
from robaudit.spec import AuditSpec
from robaudit.store.folder import RunFolder, label_of
from robaudit.store.run import Run, read_run

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
    together with ``confidence``, however often one looks and whatever the looks have in common. Gates on other results are at the
    same confidence: a run has one. Each look is an ordinary run in ``OUT.looks/``; the last becomes ``out``.

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
        ValueError: the spec has no mc with a fixed number of samples.
    """
    most = most_draws(spec, limit)
    if not most:
        raise ValueError("sample_until_decided: the spec has no mc with a fixed number of samples")
    asked = Asked(identity=identity(spec.document()), gates=[str(gate) for gate in gates], confidence=confidence, most=most)
    possible, each = possible_looks(most), asked.each()
    if out.name in ("", ".."):
        raise RunError(str(out), "cannot be made a run folder", "give --out a name")
    RunFolder(out).check()
    beside = out.with_name(out.name + ".looks")
    sampled = {label_of(entry) for entry in spec.document()["estimators"] if _fixed(entry)}

    def look(wanted: AuditSpec, draws: int, folder: Path) -> Look:
        run = audit(wanted, folder)
        return Look(draws, run, decide(run, gates, point=point, confidence=each))

    before = _before(out, asked)
    if before is not None:
        found, gates_then = before
        last = look(_with(spec, found.draws[-1], gates_then), found.draws[-1], out)
        _remove(beside)
        return Sampled((last,), most, sum(found.draws))
    looks: list[Look] = []
    draws = possible[0]
    while True:
        wanted = with_draws(spec, draws)
        folder = beside / f"{identity(wanted.document())[:8]}-{draws}"  # another spec's looks are no obstacle
        left = RunFolder(folder).exists
        try:
            looks.append(look(wanted, draws, folder))
        except RunError as error:
            if not left or error.remedy != "choose another --out":
                raise
            remedy = f"delete {beside}, which an earlier command left, or choose another --out"
            raise RunError(error.where, error.what, remedy) from error
        if told is not None:
            told(looks[-1], most)
        now = looks[-1].decisions
        still = [one for one in now if one.verdict == "inconclusive" and one.gate.estimator in sampled]
        if draws >= most or not still or any(one.verdict == "fail" for one in now):
            break
        draws = next_draws(draws, most, still)
    last = looks[-1]
    record = Looks(
        asked=asked,
        point=point,
        each=each,
        draws=[one.draws for one in looks],
        run=RunOf(identity=last.run.info["identity"], base_identity=last.run.info["base_identity"]),
        gates=[Decided.model_validate(one.document()) for one in last.decisions],
    )
    write_looks(last.run.path, record)
    try:
        last.run.path.rename(out)
    except OSError as error:
        raise RunError(str(out), f"cannot be made a run folder: {error.strerror or error}", "choose another --out") from error
    _remove(beside)
    return Sampled((*looks[:-1], Look(last.draws, read_run(out), last.decisions)), most, sum(one.draws for one in looks))


def with_draws(spec: AuditSpec, draws: int) -> AuditSpec:
    """The spec with no more draws of mc than these."""
    return _with(spec, draws, spec.gates)


def _with(spec: AuditSpec, draws: int, gates: Sequence[str]) -> AuditSpec:
    document = {**spec.document(), "gates": list(gates)}
    for entry in document["estimators"]:
        if _fixed(entry):
            entry["options"]["samples"] = min(_samples(entry), draws)
    return AuditSpec.model_validate(document).located(spec.base_dir, spec.name)


def _fixed(entry: Mapping[str, Any]) -> bool:
    options = entry["options"]
    return entry["name"] == "mc" and options.get("tolerance") is None and options.get("decide") is None


def _samples(entry: Mapping[str, Any]) -> int:
    return int(entry["options"].get("samples", _DRAWS))


def _before(out: Path, asked: Asked) -> tuple[Looks, Sequence[str]] | None:
    """What a finished run of this kind in ``out`` says of its looks, and the gates of its spec; None where there is no run.

    Raises:
        RunError: it is another run.
    """
    folder = RunFolder(out)
    if not folder.exists:
        return None
    info = folder.info()
    looks = read_looks(out, info)
    if looks is None:
        remedy = "decide gates on it with robaudit gate, or choose another --out"
        raise RunError(str(out), "holds a run that was not sampled for gates", remedy)
    if looks.asked != asked:
        raise sampled_for_others(out)
    return looks, info["spec"].get("gates", ())


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):  # nothing of value is in it: the last look has left it
        shutil.rmtree(folder)
