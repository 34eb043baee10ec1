"""Disks that fail and processes that die: every operation of a command on its run folder is counted, and any of them can go wrong."""
