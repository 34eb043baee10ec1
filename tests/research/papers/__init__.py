"""The tables and figures of four papers, made again: ``python -m tests.research.papers`` writes
docs/papers."""
