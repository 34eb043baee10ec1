"""`robaudit demo`: an audit of two small classifiers that ship with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the two runs. Default: runs.")] = None,
) -> None:
    """Audit two small digit classifiers that ship with robaudit: an ordinary one and one trained with noise.

    Needs no files and no network, and takes under a minute on two CPU cores.

    Example: robaudit demo --out runs
    """
    from importlib.resources import files

    from rich.console import Group
    from rich.markup import escape
    from rich.text import Text

    from robaudit.auditing.run import audit
    from robaudit.cli.console import Reporter, output
    from robaudit.cli.reading import print_run
    from robaudit.memory import keep_freed_memory
    from robaudit.report.class_tables import bias_table
    from robaudit.report.flag_tables import flags_table
    from robaudit.stats.classes import class_bias
    from robaudit.stats.flags import flag
    from robaudit.store.folder import in_runs

    keep_freed_memory()
    console = output()
    console.print("Two classifiers of handwritten digits (8 x 8 pixels): how often does each keep its prediction when a sensor adds noise?")
    descriptions = {"ordinary": "an ordinary CNN", "noise_trained": "the same CNN, trained with noise"}
    folders = {name: in_runs(f"demo-{name}", out) for name in descriptions}
    runs = {}
    for name, description in descriptions.items():
        console.print()
        console.rule(f"robaudit estimate {name}.yaml: {description}", align="left")
        with Reporter() as reporter:
            runs[name] = audit(Path(str(files("robaudit.demo") / f"{name}.yaml")), out=folders[name], listener=reporter)
        print_run(runs[name])
    run = runs["ordinary"]
    at = max((at for _, at in run.groups()), key=lambda at: at.level)
    rows = run.groups(["mc"])["mc", at]
    console.print()
    console.rule(f"robaudit bias-report {run.path} --estimator mc --sigma {at.level:g}", align="left")
    console.print(bias_table(class_bias(rows, class_names=run.class_names)))
    console.print()
    console.rule(f"robaudit flag-samples {run.path} --estimator mc --sigma {at.level:g}", align="left")
    console.print(flags_table(flag(rows), run.class_names, limit=10))
    console.print()
    console.rule("next steps", align="left")
    console.print(Group(*map(Text, _next_steps(run.path, folders["noise_trained"], str(files("robaudit.demo") / "ordinary.yaml")))))
    console.print(escape("For your own model, write a spec like this one, then run: robaudit estimate spec.yaml"))


def _next_steps(ordinary: Path, trained: Path, spec: str) -> list[str]:
    return [
        f"The result of every sample:   {ordinary}/samples.csv",
        f"The tables again:             robaudit show {trained}",
        f"The least robust classes:     robaudit bias-report {trained} --estimator mc",
        f"The least robust samples:     robaudit flag-samples {ordinary} --estimator mc --images worst/",
        f"The spec behind the demo:     {spec}",
    ]
