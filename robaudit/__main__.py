"""``python -m robaudit`` is ``robaudit``."""

from robaudit.cli import main

main()
