"""Of several runs, what is reported where not each has all that was asked for?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from robaudit.errors import NothingLeftError, RunError
from robaudit.html.content import Choice, Content, gather
from robaudit.store.run import Run

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was asked of a run, as far as it has it, and what it says of the rest."""

    run: Run
    choice: Choice
    estimators: Mapping[str, RunError]
    sigmas: Mapping[float, RunError]
    some: bool


def gather_all(runs: Sequence[Run], choice: Choice) -> tuple[list[Content], list[str]]:
    """Read several runs, of each those of the named estimators and noise levels that it has.

    Args:
        runs: at least one.
        choice: of each.

    Returns:
        What is said about each run that has some of them, and a line for all that is missing somewhere.

    Raises:
        RunError: no run has one of them.
        NothingLeftError, RobauditError: as :func:`robaudit.html.content.gather`.
    """
    if not choice.estimators and not choice.sigmas:
        return [gather(run, choice) for run in runs], []
    asked = [_asked(run, choice) for run in runs]
    _refuse_unknown(choice.estimators, [one.estimators for one in asked])
    _refuse_unknown(choice.sigmas, [one.sigmas for one in asked])
    if not any(one.some for one in asked):
        raise NothingLeftError("robaudit report", "no run has these estimators at these noise levels", "name others")
    return [gather(one.run, one.choice) for one in asked if one.some], [note for one in asked for note in _notes(one)]


def _notes(one: _Asked) -> list[str]:
    lacks = [str(error) for error in (*one.estimators.values(), *one.sigmas.values())]
    if one.some:
        return lacks
    return [f"left out: {text}" for text in lacks or [f"{one.run.path}: has none of these estimators at these noise levels"]]


def _asked(run: Run, choice: Choice) -> _Asked:
    keys = list(dict.fromkeys((row.estimator, row.sigma) for row in run.rows))
    no_name = _missing(choice.estimators, lambda name: run.chosen(keys, [name], []))
    no_level = _missing(choice.sigmas, lambda sigma: run.chosen(keys, [], [sigma]))
    estimators = [name for name in choice.estimators if name not in no_name]
    sigmas = [sigma for sigma in choice.sigmas if sigma not in no_level]
    some = bool(estimators or not choice.estimators) and bool(sigmas or not choice.sigmas)
    some = some and bool(run.chosen(keys, estimators, sigmas))
    return _Asked(run, replace(choice, estimators=estimators, sigmas=sigmas), no_name, no_level, some)


def _missing(asked: Sequence[T], look: Callable[[T], object]) -> dict[T, RunError]:
    """What the run has not, and what it says of that."""
    found = {}
    for one in asked:
        try:
            look(one)
        except RunError as error:
            found[one] = error
    return found


def _refuse_unknown(asked: Sequence[T], missing: Sequence[Mapping[T, RunError]]) -> None:
    for one in asked:
        if all(one in lacks for lacks in missing):
            raise missing[0][one]
