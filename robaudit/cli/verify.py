"""`robaudit verify`: do a run's numbers come out again?"""

from __future__ import annotations

from typing import Annotated

import typer

from robaudit.cli.options import RunArgument, TrustOption
from robaudit.errors import RobauditError

_MOST = 20


def verify(
    run: RunArgument,
    samples: Annotated[str, typer.Option(metavar="N|all", help="How many samples to compute anew, drawn at random; or all.")] = "20",
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the draw. Default: another one each time.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:1. Default: the kind the run was made on.")] = None,
    trust: TrustOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only differences, warnings and errors.")] = False,
) -> None:
    """Compute rows of a run anew, from its weights and data, and compare: exit 0 when all agree, 1 when one differs.

    A number may be off by float rounding: 5e-4 of its distance to the nearer end of its range, and two votes.

    Example: robaudit verify runs/spec-1a2b3c4d --samples all
    """
    count = _count(samples)
    from robaudit.cli.console import Reporter
    from robaudit.cli.process import keep_freed_memory
    from robaudit.store.run import read_run
    from robaudit.verify import verify as check

    keep_freed_memory()
    opened = read_run(run, kept=True)
    with Reporter(quiet=quiet, patient=False) as reporter:
        found = check(opened, count, seed=seed, device=device, trust=trust, listener=reporter)
    for name in found.altered:
        typer.echo(f"{run}/{name} is not as it was written")
    for one in found.differences[:_MOST]:
        where = f"{one.row.sample_id}, {one.row.estimator} at sigma {one.row.sigma:g}"
        typer.echo(f"{where}: {one.field} is {_shown(one.written)} in the run and {_shown(one.found)} now")
    if len(found.differences) > _MOST:
        typer.echo(f"and {len(found.differences) - _MOST} more")
    if not quiet or not found.good:
        typer.echo(
            f"{found.rows} rows of {found.samples} samples computed anew: "
            + ("all as written" if not found.differences else f"{len(found.differences)} numbers differ")
        )
    if not found.good:
        raise typer.Exit(1)


def _count(text: str) -> int | None:
    if text == "all":
        return None
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 10**9):
        raise RobauditError(f"--samples {text}", "is no number of samples", "give a number of at least 1, or all")
    return int(text)


def _shown(value: object) -> str:
    return ascii(value) if isinstance(value, str) else str(value)
