"""Run docs/audit.ipynb; ``python -m tests.notebook`` writes its outputs."""

from __future__ import annotations

import os
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

PATH = Path(__file__).resolve().parents[1] / "docs" / "audit.ipynb"


def executed(folder: Path) -> Any:
    """The notebook with new outputs.

    Args:
        folder: where it runs, and where Jupyter keeps what it needs.
    """
    from nbclient import NotebookClient

    nbformat: Any = import_module("nbformat")

    notebook = nbformat.read(PATH, as_version=4)
    for name in (
        "IPYTHONDIR",
        "JUPYTER_RUNTIME_DIR",
        "JUPYTER_DATA_DIR",
        "JUPYTER_CONFIG_DIR",
        "MPLCONFIGDIR",
    ):
        os.environ[name] = str(folder / name.lower())
    os.environ["COLUMNS"] = "120"
    client = NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
    )
    client.execute()
    for cell in notebook.cells:
        cell.metadata = nbformat.NotebookNode()
        for output in cell.get("outputs", ()):
            if output.output_type in ("display_data", "execute_result"):
                output.metadata = nbformat.NotebookNode()
                output.pop("transient", None)
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    )
    return notebook


def main() -> None:
    """Write the outputs."""
    nbformat: Any = import_module("nbformat")
    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(executed(Path(folder)), PATH)


if __name__ == "__main__":
    main()
