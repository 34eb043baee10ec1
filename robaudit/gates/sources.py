"""Where do the gates come from: the command line, a spec, the run's own spec or pyproject.toml?"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from robaudit.errors import SpecError, did_you_mean
from robaudit.gates.grammar import Gate, parse_gate
from robaudit.gates.quantities import QUANTITIES
from robaudit.gates.result import Verdict

_LARGEST = 2**20  # bytes


@dataclass(frozen=True, slots=True)
class Rules:
    """Gates, and how they are decided; None: not said.

    Attributes:
        gates: one or more.
        where: where they stand.
        inconclusive: what an inconclusive gate counts as.
        population, point, confidence: of :func:`robaudit.gates.decide.decide`.
    """

    gates: tuple[Gate, ...]
    where: str
    inconclusive: Verdict | None = None
    population: bool | None = None
    point: bool | None = None
    confidence: float | None = None


def find_rules(
    given: Sequence[str], *, spec: Path | None = None, pyproject: Path | None = None, own: Sequence[str] = (), owner: str = ""
) -> Rules:
    """The gates of the first place that has some: the command line, ``--spec``, ``--pyproject``, the run's own spec, and the
    pyproject.toml of the working folder. Its other keys hold only where its gates do.

    Args:
        given: of ``--gate``.
        spec, pyproject: files named on the command line.
        own: gates of the run's spec.
        owner: what messages call that.

    Raises:
        SpecError: there are none; one is no gate; or a file cannot be read, or says something else.
    """
    if given:
        return Rules(parsed(given, "--gate"), "the command line")
    if spec is not None:
        from robaudit.spec.load import load_spec

        return Rules(_some(load_spec(spec).gates, str(spec), "gates: [mean >= 0.9]"), str(spec))
    if pyproject is not None:
        rules = _from_pyproject(pyproject)
        if rules is None:
            raise SpecError(str(pyproject), "has no gates", '[tool.robaudit] gates = ["mean >= 0.9"]')
        return rules
    if own:
        return Rules(parsed(own, f"{owner}, gates"), owner)
    nearest = Path("pyproject.toml")
    rules = _from_pyproject(nearest) if nearest.is_file() else None
    if rules is None:
        raise SpecError(
            "robaudit gate",
            "there is no gate on the command line, in the run's spec or in pyproject.toml",
            'give --gate "mean >= 0.9", or write gates: [mean >= 0.9] in the spec',
        )
    return rules


def parsed(texts: Sequence[str], where: str) -> tuple[Gate, ...]:
    """The gates of some texts.

    Raises:
        SpecError: one is no gate.
    """
    return tuple(parse_gate(text, QUANTITIES, where) for text in texts)


def _some(texts: Sequence[str], where: str, example: str) -> tuple[Gate, ...]:
    if not texts:
        raise SpecError(where, "has no gates", f"for example {example}")
    return parsed(texts, where)


def _from_pyproject(path: Path) -> Rules | None:
    """The section [tool.robaudit]; None where there is none with gates."""
    section = _section(path)
    known = ("gates", "inconclusive", "population", "point", "confidence")
    where = f"{path}, [tool.robaudit]"
    for key in section:
        if key not in known:
            raise SpecError(where, f"unknown key {key!r}", did_you_mean(key, known))
    if not section.get("gates"):
        return None
    gates = section["gates"]
    if not isinstance(gates, list) or not all(isinstance(gate, str) for gate in gates):
        raise SpecError(where, "gates is no list of texts", 'for example gates = ["mean >= 0.9"]')
    for key in ("population", "point"):
        if not isinstance(section.get(key, False), bool):
            raise SpecError(where, f"{key} must be true or false", f"for example {key} = true")
    confidence = section.get("confidence")
    if confidence is not None and (isinstance(confidence, bool) or not isinstance(confidence, int | float)):
        raise SpecError(where, "confidence must be a number", "for example confidence = 0.95")
    inconclusive = section.get("inconclusive")
    if inconclusive is not None and inconclusive not in get_args(Verdict):
        raise SpecError(where, f"inconclusive is {inconclusive!r}", "write one of " + ", ".join(map(repr, get_args(Verdict))))
    return Rules(parsed(gates, where), where, inconclusive, section.get("population"), section.get("point"), confidence)


def _section(path: Path) -> Mapping[str, Any]:
    try:
        if not path.is_file():
            raise SpecError(str(path), "no such file", "name a pyproject.toml")
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise SpecError(str(path), "is larger than 1 MB", "name a pyproject.toml")
        document = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # no TOML, or no UTF-8
        raise SpecError(str(path), f"is not valid TOML: {error}") from error
    except OSError as error:
        raise SpecError(str(path), f"cannot be read: {error.strerror or error}") from error
    tool = document.get("tool")
    section = tool.get("robaudit", {}) if isinstance(tool, dict) else {}
    if not isinstance(section, dict):
        raise SpecError(f"{path}, tool.robaudit", "is no section", '[tool.robaudit] gates = ["mean >= 0.9"]')
    return section
