"""The tables and figures of four papers, made again: ``python -m tests.papers`` writes docs/papers."""
