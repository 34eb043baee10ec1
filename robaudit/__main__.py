"""Run the command line: ``python -m robaudit``."""

from robaudit.cli import main

main()
