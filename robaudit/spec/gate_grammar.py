"""The grammar of a gate: quantity[(name=value, ...)] >=|<= number."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Literal

from robaudit.errors import RobauditError, SpecError, did_you_mean
from robaudit.levels import GAUSSIAN, LevelChoice, LevelName, NoiseLevel
from robaudit.names import Part, PartName, ResultName
from robaudit.plugins import (
    STATISTICS,
    entry_point,
    in_group,
    load_plugin,
    names_in,
    reference,
    shown,
)
from robaudit.records import Member, Record
from robaudit.spec.fields import as_number

Relation = Literal[">=", "<="]


WARNINGS = "warnings"
"""The number of warnings of a run."""


class RunQuantities(Mapping[str, tuple[str, ...]]):
    """The quantities of ``robaudit gate`` by name: the required arguments of each installed
    statistic, besides those that select results.

    A statistic is imported when its arguments are looked up.
    """

    def __getitem__(self, name: str) -> tuple[str, ...]:
        if name not in self:
            raise KeyError(name)
        statistic = load_plugin(STATISTICS, _WHAT, name)
        try:
            return tuple(argument.name for argument in statistic.arguments)
        except (AttributeError, TypeError) as error:
            value = entry_point(STATISTICS, _WHAT, name).value
            raise RobauditError(
                f"{_WHAT} {name}",
                f"{value} is {shown(statistic)}, not a Statistic",
                "fix or uninstall the plugin",
            ) from error

    def __iter__(self) -> Iterator[str]:
        return iter(names_in(STATISTICS))

    def __len__(self) -> int:
        return len(names_in(STATISTICS))

    def __contains__(self, name: object) -> bool:
        return name in names_in(STATISTICS)

    def arguments(self) -> list[str]:
        """The arguments of all statistics; the core's own come first."""
        arguments: dict[str, None] = {}
        for name in sorted(self, key=self._is_from_elsewhere):
            # A broken plugin says what is wrong when a gate names it, not in every output.
            with contextlib.suppress(RobauditError):
                arguments.update(dict.fromkeys(self[name]))
        return list(arguments)

    def _is_from_elsewhere(self, name: str) -> bool:
        """Whether a statistic is from a family or another package, not from the core."""
        return not any(
            point.name == name and point.module.startswith("robaudit.gates.")
            for point in in_group(STATISTICS)
        )


QUANTITIES = RunQuantities()
"""The quantities of ``robaudit gate``."""
_WHAT = "gate statistic"
_GATE = re.compile(
    r"\s*(?P<quantity>\w+)\s*(?:\((?P<arguments>[^()]*)\))?"
    r"\s*(?P<relation>[<>=!~]+)\s*(?P<number>.*?)\s*",
    re.DOTALL,
)
_LONGEST = 300  # characters of a gate; messages repeat its text
_EXAMPLE = "mean"  # the quantity of the example in messages, where it is known


@dataclass(frozen=True, slots=True)
class Gate(Record):
    """One gate.

    Attributes:
        quantity: the compared quantity.
        relation, threshold: ``>=`` or ``<=``, and the number.
        estimator, noise, level: select the results; None: the run's only one.
        level_name: the name of the level; None: any. The text ``sigma=0.1`` is a level with the
            name sigma.
        part: selects a value of an estimator with several (``q=100``); None: any.
        arguments: the arguments of the quantity, by name.
    """

    quantity: str
    relation: Relation
    threshold: float
    estimator: str | None = None
    noise: str | None = None
    level: float | None = None
    level_name: LevelName | None = None
    part: Part | None = None
    arguments: Mapping[str, float] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(str(self))  # a mapping, such as the arguments, has no hash

    @classmethod
    def json_members(cls) -> tuple[Member, ...]:
        """The members of its JSON object, with null for the arguments of other quantities."""

        def argument(name: str) -> Member:
            return Member(
                name,
                lambda gate: gate.arguments.get(name),
                float | None,
                "the argument of a quantity; None for others",
            )

        def attribute(name: str, kind: Any, about: str) -> Member:
            return Member(name, attrgetter(name), kind, about)

        about_estimator = "The name of its result; None if it names no estimator."
        about_selection = "select the results; None: the run's only one."
        about_name = (
            "the name of the level; None: any. The text ``sigma=0.1`` is a level with "
            "the name sigma."
        )
        about_relation = "``>=`` or ``<=``, and the number."
        return (
            Member("gate", str, str, "The gate as text for the command line."),
            attribute("quantity", str, "the compared quantity."),
            Member("estimator", attrgetter("result"), str | None, about_estimator),
            attribute("noise", str | None, about_selection),
            attribute("level_name", LevelName | None, about_name),
            attribute("level", float | None, about_selection),
            *map(argument, QUANTITIES.arguments()),
            attribute("relation", Relation, about_relation),
            attribute("threshold", float, about_relation),
        )

    @property
    def text(self) -> str:
        """The gate as text for the command line."""
        return str(self)

    @property
    def result(self) -> str | None:
        """The name of its result; None if it names no estimator."""
        return None if self.estimator is None else str(ResultName(self.estimator, self.part))

    def applies_to(self, name: str) -> bool:
        """Whether it can apply to the result of this name, at any noise level."""
        parsed = ResultName.parse(name)
        same_part = self.part is None or str(parsed.part) == str(self.part)
        return same_part and self.estimator in (None, name, parsed.estimator)

    @property
    def levels(self) -> LevelChoice:
        """The noise levels that it can apply to."""
        number = () if self.level is None else (self.level,)
        noises = () if self.noise is None else (self.noise,)
        sigma = self.level_name is LevelName.SIGMA
        return LevelChoice(noises, () if sigma else number, number if sigma else ())

    def with_result(self, result: str, at: NoiseLevel) -> Gate:
        """The same gate for the result of this name at this noise level."""
        name = ResultName.parse(result)
        gate = replace(self, estimator=name.estimator, part=name.part, noise=at.noise)
        return gate if at.level is None else replace(gate, level=at.level, level_name=at.name)

    def __str__(self) -> str:
        is_sigma = self.level_name is LevelName.SIGMA
        part = {} if self.part is None else {self.part.name.value: self.part.value}
        arguments = {
            "estimator": self.estimator,
            **part,
            # A sigma alone means Gaussian noise.
            "noise": None if is_sigma and self.noise == GAUSSIAN else self.noise,
            "sigma" if is_sigma else "level": self.level,
            **self.arguments,
        }
        named = ", ".join(
            f"{name}={value if isinstance(value, str) else number_text(value)}"
            for name, value in arguments.items()
            if value is not None
        )
        in_brackets = f"({named})" if named else ""
        return f"{self.quantity}{in_brackets} {self.relation} {number_text(self.threshold)}"


NO_WARNINGS = Gate(WARNINGS, "<=", 0.0)
"""The gate that ``--strict`` adds: a run with warnings fails."""


def number_text(number: float) -> str:
    """A number with six digits, or as many as it takes to read the same number back."""
    short = f"{number:.6g}"
    return short if float(short) == number else repr(number)


def parse_gate(text: str, quantities: Mapping[str, Collection[str]], where: str) -> Gate:
    """Read a gate.

    Args:
        text: as the user wrote it.
        quantities: the required arguments of the known quantities, by name, besides those that
            select results.
        where: its location, for messages (``--gate``, ``spec.yaml, gates``).

    Raises:
        SpecError: the text is not a gate, or names an unknown quantity or argument.
    """
    where = f"{where} {text!r}"
    example = f"for example {_example(quantities)!r}"
    # A long text could also make the match slow.
    match = _GATE.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise SpecError(where, "is not of the form quantity(name=value, ...) >= number", example)
    quantity = match["quantity"]
    relation = match["relation"]
    if quantity not in quantities:
        raise SpecError(where, f"unknown quantity {quantity!r}", did_you_mean(quantity, quantities))
    if relation not in (">=", "<="):
        raise SpecError(where, f"compares with {relation!r}", "write >= or <=")
    needed = sorted(quantities[quantity])
    arguments = _arguments(match["arguments"] or "", quantity, needed, where)
    for name in needed:
        if name not in arguments:
            raise SpecError(where, f"{quantity} needs {name}", f"write {quantity}({name}=0.5)")
    # sigma is a level under its own name.
    if "sigma" in arguments and "level" in arguments:
        raise SpecError(where, "has both sigma and level", "give one of them")
    key = "sigma" if "sigma" in arguments else "level"
    level = _number(arguments[key], key, where) if key in arguments else None
    estimator, part = _result(arguments, where)
    if level is not None and level <= 0:
        raise SpecError(
            where, f"{key}={level:g} is not positive", "give a noise level such as 0.05 or 8/255"
        )
    return Gate(
        quantity=quantity,
        relation=">=" if relation == ">=" else "<=",
        threshold=_number(match["number"], "the threshold", where),
        estimator=estimator,
        noise=arguments.get("noise"),
        level=level,
        level_name=LevelName.SIGMA if "sigma" in arguments else None,
        part=part,
        arguments={name: _number(arguments[name], name, where) for name in needed},
    )


def _result(arguments: Mapping[str, str], where: str) -> tuple[str | None, Part | None]:
    """The estimator and the part of ``estimator=path, q=100`` or ``estimator=path:q=100``."""
    named = ResultName.parse(arguments["estimator"]) if "estimator" in arguments else None
    parts = [_part(name, arguments[name], where) for name in PartName if name in arguments]
    if named is not None and named.part is not None:
        parts.append(named.part)
    if len(parts) > 1:
        raise SpecError(where, f"says both {parts[0]} and {parts[1]}", "say one of them")
    estimator = None if named is None else named.estimator
    return estimator, parts[0] if parts else None


def _part(name: PartName, value: str, where: str) -> Part:
    """The part of an argument such as ``q=100`` or ``norm=l2``."""
    if name is not PartName.NORM:
        return Part(name, _number(value, name, where, infinite=True))
    try:
        return Part.norm(value)
    except ValueError as error:
        raise SpecError(where, f"norm: {error}", "write norm=l2, norm=linf or norm=l1") from None


def _example(quantities: Mapping[str, Collection[str]]) -> str:
    """A gate for messages."""
    quantity = _EXAMPLE if _EXAMPLE in quantities else next(iter(quantities))
    named = "".join(f", {name}=0.5" for name in sorted(quantities[quantity]))
    return f"{quantity}(estimator={reference()}, sigma=0.05{named}) >= 0.9"


def _arguments(text: str, quantity: str, further: Sequence[str], where: str) -> dict[str, str]:
    """The values of ``name=value, ...`` by name, each name known and unique."""
    arguments: dict[str, str] = {}
    known = ("estimator", *PartName, "sigma", "noise", "level", *further)
    for piece in text.split(",") if text.strip() else ():
        name, equals, value = (part.strip() for part in piece.partition("="))
        is_complete = name and equals and value
        if not is_complete:
            raise SpecError(
                where, f"{piece.strip()!r} is not of the form name=value", "for example sigma=0.05"
            )
        if name not in known:
            raise SpecError(
                where, f"{quantity} has no argument {name!r}", did_you_mean(name, known)
            )
        if name in arguments:
            raise SpecError(where, f"{name} appears twice", "name it once")
        arguments[name] = value.strip("'\"")  # noise='rain' is as good as noise=rain
    return arguments


def _number(text: str, what: str, where: str, *, infinite: bool = False) -> float:
    """The number in a text, for example 0.9 or 8/255.

    Raises:
        SpecError: it is no number, or an infinite one where that is not allowed.
    """
    try:
        number = float(str(as_number(text)))  # as_number reads 8/255
    except ValueError:
        number = math.nan
    if math.isnan(number) or (math.isinf(number) and not infinite):
        raise SpecError(
            where, f"{what} is {text!r}, not a number", "write a number such as 0.9 or 8/255"
        )
    return number
