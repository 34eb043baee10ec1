"""`robaudit train`: train a reference model with an objective of the papers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from robaudit import settings
from robaudit.cli.options import QuietOption, TrustOption, option


def train(
    spec: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC.yaml", help="The training spec: network, data set, objective, epochs."
        ),
    ],
    out: Annotated[
        Path | None,
        option(settings.OUT, help="Folder of the results. Default: models/<spec name>."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        option(settings.SET, help="Set any value of the spec, for example epochs=2 (repeatable)."),
    ] = None,
    device: Annotated[
        str | None,
        option(settings.DEVICE, help="cpu, cuda, cuda:1 or auto.", metavar=None),
    ] = None,
    trust: TrustOption = False,
    quiet: QuietOption = False,
) -> None:
    """Train a reference model, and write its weights with a spec that robaudit estimate takes.

    Example: robaudit train configs/training/digits-noise.yaml --set
    objective.augmentation.noise.sigma=0.3
    """
    from rich.markup import escape

    from robaudit.cli.console import Reporter, output, starting
    from robaudit.files import read_json
    from robaudit.methods.training.spec import load_training
    from robaudit.text import shell

    training = load_training(spec, settings=set_ or ())
    with starting(quiet=quiet):
        # These import torch, which takes seconds.
        from robaudit.methods.training.trainer import AUDIT, RECORD
        from robaudit.methods.training.trainer import train as run
    # Not patient: Ctrl-C ends training at once, because weights are saved only in the end.
    with Reporter(quiet=quiet, patient=False, action="training", unit="steps") as reporter:
        folder = run(training, out=out, device=device, trust=trust, listener=reporter)
    if not quiet:
        record = read_json(folder / RECORD)
        console = output()
        console.print(
            f"{'clean accuracy':16}{record['accuracy']:.2%} of {record['accuracy_on']:,} images"
        )
        command = escape(f"robaudit estimate {shell(folder / AUDIT)}")
        # Not broken at the edge of the terminal, so that it can be copied.
        console.print(f"{'audit it':16}{command}", soft_wrap=True)
