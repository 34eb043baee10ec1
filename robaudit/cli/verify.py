"""`robaudit verify`: check that the numbers of a run can be reproduced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from robaudit.cli.options import RunArgument, TrustOption
from robaudit.errors import RobauditError
from robaudit.text import printable

if TYPE_CHECKING:
    from robaudit.auditing.verify import Verification

_MOST_SHOWN = 20


def verify(
    run: RunArgument,
    samples: Annotated[str, typer.Option(metavar="N|all", help="How many samples to recompute, drawn at random; or all.")] = "20",
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of that draw. Default: a new one each time.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:1. Default: the kind of device the run was made on.")] = None,
    trust: TrustOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only differences, warnings and errors.")] = False,
) -> None:
    """Recompute rows of a run from its weights and data, and compare: exit code 0 if all agree, 1 if one differs.

    Numbers may differ by float rounding: by 5e-4 of their distance to the nearer end of their range, and by two votes.

    Example: robaudit verify runs/spec-1a2b3c4d --samples all
    """
    count = _count(samples)
    from robaudit.store.run import read_run

    opened = read_run(run, kept=True)
    from robaudit.auditing.verify import verify as check
    from robaudit.cli.console import Reporter
    from robaudit.cli.streams import emit

    with Reporter(quiet=quiet, patient=False) as reporter:
        result = check(opened, count, seed=seed, device=device, trust=trust, listener=reporter)
    lines = [f"{run}/{name} has changed since it was written" for name in result.altered]
    for one in result.differences[:_MOST_SHOWN]:
        where = f"{one.row.sample_id}, {one.row.estimator} at {one.row.at}"
        lines.append(f"{printable(where)}: {one.field} is {_shown(one.recorded)} in the run and {_shown(one.recomputed)} now")
    if len(result.differences) > _MOST_SHOWN:
        lines.append(f"and {len(result.differences) - _MOST_SHOWN} more")
    if not quiet or not result.good:
        lines.append(
            f"{result.rows} rows of {result.samples} samples recomputed: "
            + (f"{len(result.differences)} numbers differ" if result.differences else f"all as written, {_bits(result)}")
        )
    emit("".join(f"{line}\n" for line in lines), None)
    if not result.good:
        raise typer.Exit(1)


def _bits(result: Verification) -> str:
    different = result.rows - result.identical
    return f"{different} of them up to rounding" if different else "bit for bit"


def _count(text: str) -> int | None:
    if text == "all":
        return None
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 10**9):
        raise RobauditError(f"--samples {text}", "is not a number of samples", "give a whole number of at least 1, or all")
    return int(text)


def _shown(value: object) -> str:
    return ascii(value) if isinstance(value, str) else str(value)
