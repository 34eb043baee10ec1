"""Run the command line: ``python -m robaudit``."""

import sys

# Python puts the working folder first on the path of modules. An audit may stand in a stranger's
# folder, whose typer.py must not run.
if not sys.flags.safe_path:
    del sys.path[0]

from robaudit.cli import main

main()
