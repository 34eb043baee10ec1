"""`robaudit compare --baseline`: which findings of a run are not accepted yet?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robaudit.errors import RunError


def against_baseline(
    run: Path,
    baseline: Path,
    below: float | None,
    estimators: Sequence[str],
    sigmas: Sequence[float],
    *,
    include: str | None,
    update: bool,
    prune: bool,
    format_: str,
    output: Path | None,
) -> int:
    """Hold a run's findings against the file of accepted ones, print what was found, and return the exit code.

    Raises:
        RunError: the file is damaged, or there is none and it is not to be written.
    """
    import json
    import math

    from robaudit.cli.compared import emit_table, emit_text, gates_text, summarise
    from robaudit.cli.console import messages
    from robaudit.compare.accepted import read_accepted, write_accepted
    from robaudit.compare.baseline import stand
    from robaudit.compare.baseline_texts import baseline_sections, decisions
    from robaudit.compare.matching import described
    from robaudit.compare.texts import table
    from robaudit.gates.formats import Subject, decisions_document
    from robaudit.gates.result import EXIT_CODES, overall
    from robaudit.reports.headline import count
    from robaudit.store.run import read_run

    accepted = read_accepted(baseline)
    if accepted is None and not update:
        raise RunError(str(baseline), "no such file", "write it with the findings of this run: --update")
    opened = read_run(run)
    include = include or ("surely" if accepted is None else accepted.include)
    found = stand(opened, accepted, below, estimators, sigmas, maybe=include == "maybe")
    looked_at = opened.chosen(dict.fromkeys((row.estimator, row.sigma) for row in opened.rows), estimators, sigmas)
    decided = decisions(found, looked_at, accepting=update)
    not_finite = sum(not math.isfinite(row.value) for row in opened.rows if (row.estimator, row.sigma) in looked_at)
    subject = Subject.of(opened.info, "compare", left_out={"not_finite": not_finite})
    if format_ == "table":
        emit_table(table(baseline_sections(found, opened.class_names)), decided, "inconclusive", output)
    elif format_ == "json":
        document = {**decisions_document(decided, subject), "baseline": found.document()}
        emit_text(json.dumps(document, indent=2, allow_nan=False) + "\n", output)
    else:
        emit_text(gates_text(format_, decided, subject, "inconclusive"), output)
    if format_ == "github":
        summarise(decided, subject, "inconclusive")
    if update:
        model = opened.info["model"]
        header = {
            "model": {"name": model["name"], "sha256": model["sha256"]},
            "noise": described(opened).kind,
            "include": include,
        }
        kept = found.accepted_now(prune=prune)
        write_accepted(baseline, header, found.thresholds, kept)
        messages().print(f"{baseline}: {len(kept)} accepted findings", markup=False)
        if unknown := found.of("unknown"):
            told = f"{count(len(unknown), 'result')} without a finite value, or skipped: not accepted, and may be findings"
            messages().print(told, markup=False)
        return 0
    return EXIT_CODES[overall(decided)]
