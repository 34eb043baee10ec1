"""How does a report leave the program: as a table, CSV or JSON, on standard output or in a file?"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from robaudit.cli.console import output
from robaudit.cli.options import TextFormat
from robaudit.store.serialise import document_json
from robaudit.text import printable


def emit(
    format_: TextFormat,
    *,
    table: Callable[[], RenderableType],
    csv: Sequence[str],
    documents: Sequence[dict[str, Any]],
    to: Path | None,
    write: Callable[[Path, str], None],
) -> None:
    """Print or write one report of several groups.

    Args:
        format_: table, csv or json.
        table: makes the table.
        csv: a CSV text for each group, all with the same header, which is written once.
        documents: a JSON document for each group.
        to: the file of ``-o``, or None for standard output.
        write: writes a text to a file.
    """
    if format_ is TextFormat.TABLE:
        if to is None:
            output().print(table())
        else:
            plain = Console(file=io.StringIO(), width=120, highlight=False, color_system=None)
            with plain.capture() as captured:
                plain.print(table())
            write(to, captured.get())
        return
    text = document_json({"groups": list(documents)}) if format_ is TextFormat.JSON else _joined(csv)
    if to is None:
        put([text])
    else:
        write(to, text)


def put(texts: Iterable[str]) -> None:
    """Write to standard output: as it is to a file or a pipe; on a terminal, what could steer it is written as escapes."""
    terminal, encoding = sys.stdout.isatty(), sys.stdout.encoding or "utf-8"
    sys.stdout.flush()
    for text in texts:
        data = _visible(text).encode(encoding, "backslashreplace") if terminal else text.encode()
        sys.stdout.buffer.write(data)
    sys.stdout.flush()


def _visible(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def _joined(texts: Sequence[str]) -> str:
    return texts[0] + "".join(text.partition("\n")[2] for text in texts[1:])
