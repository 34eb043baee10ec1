"""`robaudit estimate`: audit a model on a data set."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robaudit.cli.gate import ConfidenceOption, GatesOption, InconclusiveOption, PointOption
from robaudit.cli.options import TrustOption, sigmas

if TYPE_CHECKING:
    from robaudit.spec import AuditSpec
    from robaudit.store.run import Run


class OnError(StrEnum):
    """What to do with an unusable sample."""

    STOP = "stop"
    SKIP = "skip"


def estimate(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.yaml", help="What to audit: model, data set, noise, estimators.")],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Run folder. Default: runs/<spec name>-<hash8>.")] = None,
    sigma: Annotated[list[str] | None, typer.Option(help="Noise level instead of the spec's, as 0.05 or 8/255 (repeatable).")] = None,
    estimator: Annotated[list[str] | None, typer.Option(help="Estimator instead of the spec's (repeatable).")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any spec value: model.mean=[0.5], mc.samples=2000.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 or auto.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Audit the first N samples.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the noise.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Threads that read and decode images ahead. Default: 4 with CUDA, 0 on the CPU.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Main memory to stay within, as 4GB. Default: what the machine leaves.")
    ] = None,
    deterministic: Annotated[bool, typer.Option("--deterministic", help="CUDA: the same bits from every run.")] = False,
    trust: TrustOption = False,
    on_error: Annotated[OnError, typer.Option(help="At an unusable sample: stop, or skip and list it.")] = OnError.STOP,
    extend: Annotated[bool, typer.Option("--extend", help="Add a larger limit, another sigma or estimator to an existing run.")] = False,
    gates: GatesOption = None,
    until_decided: Annotated[
        bool, typer.Option("--until-decided", help="Sample until the gates of the spec (or of --gate, which implies it) are decided.")
    ] = False,
    max_samples: Annotated[
        int | None, typer.Option(min=1, help="With gates: the most noisy copies of an image. Default: the spec's samples of mc.")
    ] = None,
    population: Annotated[bool, typer.Option("--population", help="With gates: all draws at once, then intervals over images.")] = False,
    point: PointOption = False,
    inconclusive: InconclusiveOption = None,
    confidence: ConfidenceOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings and errors, on standard error.")] = False,
) -> None:
    """Estimate every sample's robustness to noise and write a run folder.

    An interrupted run goes on where it stopped: give the same command again. With --gate it draws until the gates are decided, and
    exits as robaudit gate does: 0 all pass, 1 one fails, 4 one cannot be told.

    Example: robaudit estimate spec.yaml --sigma 0.05 --sigma 8/255 --limit 100
    """
    from robaudit.cli.console import Reporter, messages
    from robaudit.cli.looking import Looking, decide_by_sampling
    from robaudit.errors import SpecError
    from robaudit.spec_file import load_spec

    looking = Looking(gates or (), max_samples, population, point, inconclusive, confidence)
    if extend and (gates or until_decided):
        raise SpecError("--extend", "an extension is not sampled until gates are decided", "extend first, then robaudit gate RUN")
    if not gates and not until_decided:
        looking.refuse_alone()
    sigmas(sigma)  # its messages name the option; those of the spec would name a line
    overrides: dict[tuple[int | str, ...], Any] = {
        ("dataset", "limit"): limit,
        ("run", "seed"): seed,
        ("run", "device"): device,
        ("run", "workers"): workers,
        ("run", "memory"): memory,
        ("run", "deterministic"): deterministic or None,
    }
    asked = load_spec(
        spec,
        settings=set_ or (),
        sigmas=sigma or (),
        estimators=estimator or (),
        overrides={key: value for key, value in overrides.items() if value is not None},
    )
    from robaudit.auditing import audit
    from robaudit.cli.process import keep_freed_memory
    from robaudit.provenance import command_line

    keep_freed_memory()
    command = command_line(sys.argv[1:])

    def audited(wanted: AuditSpec, folder: Path | None) -> Run:
        with Reporter(quiet=quiet) as reporter:
            return audit(wanted, out=folder, trust=trust, on_error=on_error.value, extend=extend, listener=reporter, command=command)

    if gates or until_decided:
        raise typer.Exit(decide_by_sampling(asked, out, audited, looking, quiet=quiet))
    run = audited(asked, out)
    if not quiet:
        from robaudit.cli.show import print_run

        print_run(run)
    if (many := len(asked.gates)) and not quiet:
        messages().print(f"the spec has {many} gate{'s' * (many > 1)}: robaudit gate {run.path} decides them", markup=False)
