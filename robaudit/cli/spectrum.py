"""`robaudit spectrum`: everything that can be said of each image side by side, and whether it fits together."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robaudit.cli.options import (
    FormatOption,
    OnError,
    OnErrorOption,
    OutputOption,
    QuietOption,
    SetOption,
    TextFormat,
    TrustOption,
    image_source,
)
from robaudit.errors import RobauditError, SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from robaudit.report.gallery import ImageSource
    from robaudit.stats.spectrum import Spectrum
    from robaudit.store.run import Run

CONTRADICTED, FALSE_DECLARATION = 3, 2
"""Exit codes where results contradict each other: a bug, as for any internal error; a mistake of the spec, as for any other one."""
_PICTURES = 12


def spectrum(
    source: Annotated[Path, typer.Argument(metavar="RUN|SPEC.yaml", help="A run folder, or a spec to audit with everything that applies.")],
    bottom: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Show the N least robust images. Default: as many as fit; all as CSV and JSON."),
    ] = None,
    sample: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Show this image instead, with its intervals (repeatable).")
    ] = None,
    pictures: Annotated[Path | None, typer.Option(metavar="DIR", help="Also write a PNG of each image shown, 12 at most.")] = None,
    format_: FormatOption = TextFormat.TABLE,
    output: OutputOption = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="With a spec: the run folder. Default: runs/NAME-spectrum-<hash8>.")
    ] = None,
    extend: Annotated[bool, typer.Option("--extend", help="With a spec: add what is missing to the existing run of --out.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="With a spec: audit only the first N samples.")] = None,
    set_: SetOption = None,
    on_error: OnErrorOption = OnError.STOP,
    trust: TrustOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show all that a run says of each image, from the average over noise to what is proven, and check that it fits together.

    Results that exclude each other are reported as a bug of an estimator, with the sample: exit code 3. Of a spec, the audit is made
    first, with every estimator that its model, noise and labels allow; the same command continues it after an interruption.

    Example: robaudit spectrum runs/spec-1a2b3c4d --bottom 6 --pictures spectra/
    """
    from robaudit.cli.streams import check_output

    if source.is_dir():
        for option, given in (("--out", out), ("--extend", extend), ("--limit", limit), ("--set", set_)):
            if given:
                raise SpecError(option, f"needs a spec, and {source} is a run", "leave it out, or name the spec")
    if extend and out is None:
        raise SpecError("--extend", "needs the run to extend", "name it with --out")
    if sample and bottom is not None:
        raise SpecError("--bottom", "counts the least robust images, and --sample names images", "leave one of them out")
    if output is not None:
        check_output(output)
    if pictures is not None:
        _check_folder(pictures)
    from robaudit.store.run import read_run

    run = (
        read_run(source) if source.is_dir() else _audited(source, out, limit, set_ or (), on_error, extend=extend, trust=trust, quiet=quiet)
    )
    from robaudit.cli.console import say
    from robaudit.report.spectrum_tables import blame_lines
    from robaudit.stats.relations import Verdict
    from robaudit.stats.spectrum import spectrum as spectrum_of

    found = spectrum_of(run, bottom, tuple(sample or ()))
    _print(found, run, format_, output, single=bool(sample))
    if pictures is not None:
        _draw(found, run, pictures, None if source.is_dir() else image_source(source, trust))
    for line in blame_lines(found.consistency):
        say(line)
    if found.consistency.violations:
        raise typer.Exit(CONTRADICTED)
    raise typer.Exit(FALSE_DECLARATION if found.consistency.of(Verdict.DECLARED) else 0)


def _audited(
    path: Path, out: Path | None, limit: int | None, settings: Sequence[str], on_error: OnError, *, extend: bool, trust: bool, quiet: bool
) -> Run:
    """Audit a spec with every estimator that applies, or continue that."""
    from robaudit.spec.load import load_spec

    asked = load_spec(path, settings=settings, overrides={} if limit is None else {("dataset", "limit"): limit})
    from robaudit.cli.console import Reporter, starting

    with starting(quiet=quiet):
        from robaudit.auditing.environment import command_line
        from robaudit.auditing.run import audit
        from robaudit.auditing.spectrum import fitted_spec, spectrum_folder

    with Reporter(quiet=quiet) as reporter:
        reporter.doing("loading model and data to see what applies")
        spec, left_out = fitted_spec(asked, trust=trust, skip_bad=on_error is OnError.SKIP)
        for one in left_out:
            reporter.note(one.text)
        return audit(
            spec,
            out=spectrum_folder(spec) if out is None else out,
            trust=trust,
            on_error=on_error.value,
            extend=extend,
            listener=reporter,
            command=command_line(sys.argv[1:]),
        )


def _print(found: Spectrum, run: Run, format_: TextFormat, to: Path | None, *, single: bool) -> None:
    from robaudit.cli.console import leading_warnings, output, plain_text
    from robaudit.cli.streams import emit, reader_may_leave
    from robaudit.report.spectrum_tables import SpectrumTable, sample_table, spectrum_csv
    from robaudit.store.serialise import document_json

    warnings = leading_warnings([run], in_table=format_ is TextFormat.TABLE)
    if format_ is TextFormat.JSON:
        emit(document_json(found.document(run.class_names)), to)
    elif format_ is TextFormat.CSV:
        emit(spectrum_csv(found, run.class_names), to)
    else:
        table = (sample_table if single else SpectrumTable)(found, run.class_names)
        if to is not None:
            emit(plain_text(*warnings, table), to)
        else:
            with reader_may_leave():
                output().print(*warnings, table, sep="\n")


def _check_folder(folder: Path) -> None:
    """Refuse a folder of pictures that cannot be made, before any work is done.

    Raises:
        RobauditError: it is a file or below one, may not be written to, or matplotlib is missing.
    """
    from robaudit.report.pictures import can_draw

    can_draw(required=True, where="--pictures")
    if folder.exists() and not folder.is_dir():
        raise RobauditError(str(folder), "is a file", "name a folder for --pictures")
    nearest = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        why = "may not be written to" if nearest.is_dir() else "is a file"
        raise RobauditError(str(folder), f"cannot be made: {nearest} {why}", "choose another --pictures")


def _draw(found: Spectrum, run: Run, folder: Path, images: ImageSource | None) -> None:
    """Write a PNG of each image shown, at most a dozen; an image without anything to draw is passed over."""
    from robaudit.cli.console import say
    from robaudit.errors import NothingLeftError
    from robaudit.files import write_atomically
    from robaudit.report.gallery import plain_name
    from robaudit.report.pictures.kinds import drawn
    from robaudit.report.pictures.spectrum import portrait_of, sketch

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RobauditError(str(folder), f"cannot be made: {error.strerror or error}", "choose another --pictures") from error
    written = 0
    for rank, sample in enumerate(found.samples[:_PICTURES], start=1):
        try:
            made = sketch(portrait_of(run, sample, images))
        except NothingLeftError as error:
            say(f"note: {error}")
            continue
        write_atomically(folder / f"{plain_name(f'{rank:03d}-{sample.id}')[:120]}.png", drawn(made, "png"))
        written += 1
    say(f"{written} pictures in {folder}")
