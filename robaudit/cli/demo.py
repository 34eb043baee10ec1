"""`robaudit demo`: two small classifiers that ship with the package, audited and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_MODELS = {"ordinary": "ordinary", "noise_trained": "trained with noise"}
"""The specs of the demo, with the names of their models in tables."""
_WORST = 3
"""Samples in the list of the least robust."""


def demo(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="Folder for the two runs and the report. Default: runs.",
        ),
    ] = None,
) -> None:
    """Audit two small digit classifiers that ship with robaudit, and say which is the more robust.

    They are the same network, one trained without noise and one with. Needs no files and no
    network, and takes about 20 seconds on two CPU cores.

    Example: robaudit demo --out runs
    """
    from importlib.resources import files

    from rich.markup import escape

    from robaudit.auditing.audit import audit
    from robaudit.cli.console import Reporter, output
    from robaudit.cli.report import report
    from robaudit.errors import RobauditError
    from robaudit.report.flagged_section import flags_table
    from robaudit.report.sections import SectionRequest
    from robaudit.report.summary_section import SummarySection
    from robaudit.report.tables import Terminal
    from robaudit.runs.folder import in_runs
    from robaudit.stats.flags import flag
    from robaudit.stats.reading import read_run
    from robaudit.text import shell

    specs = {name: Path(str(files("robaudit.demo") / f"{name}.yaml")) for name in _MODELS}
    folders = {name: in_runs(f"demo-{name}", out) for name in _MODELS}
    console = output()
    console.print(
        "Two classifiers of handwritten digits, the same network trained without noise and with it."
    )
    console.print("How often does each keep its prediction when a sensor adds noise?\n")
    with Reporter() as reporter:
        for name, spec in specs.items():
            audit(spec, out=folders[name], listener=reporter)
    # With the draws that kept the class: the two are compared draw by draw.
    runs = {title: read_run(folders[name], kept=True) for name, title in _MODELS.items()}
    ordinary, trained = runs.values()
    section = SummarySection()
    request = SectionRequest(label=tuple(runs))
    entries = section.find(list(runs.values()), request)
    console.print(Terminal(section.shown(entries, request)))
    # The last rows are of the strongest noise.
    rows = list(ordinary.table.values())[-1]
    sigma = f"{rows.key.at.level:g}"
    console.print(
        f"The digits that flip most with noise of sigma {sigma}, without training against it:\n"
    )
    console.print(Terminal([flags_table(flag(rows, bottom=_WORST), ordinary.class_names)]))
    # Beside the two runs.
    page = folders["ordinary"].with_name("demo-report.html")
    try:
        report(list(folders.values()), output=page)
    except RobauditError as error:
        # The extra with matplotlib and Jinja is not installed.
        console.print(f"No report: {escape(error.what)}; {escape(error.remedy)}")
    console.rule("next steps", align="left")
    first = shell(ordinary.path)
    second = shell(trained.path)
    commands = {
        "Its tables again:": f"robaudit show {first} --with {second}",
        "Classes that are less robust:": f"robaudit bias-report {second} --sigma {sigma}",
        "Each difference, class by class:": f"robaudit compare {first} {second}",
        "The spec behind it:": str(specs["ordinary"]),
        "Your own model:": "robaudit init --model model.pt --data images/",
    }
    if page.exists():
        commands = {"The report with pictures:": str(page), **commands}
    for what, command in commands.items():
        # Not broken at the edge of the terminal, so that it can be copied.
        console.print(escape(f"{what:34}{command}"), soft_wrap=True)
