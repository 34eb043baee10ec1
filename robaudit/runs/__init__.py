"""A run: its rows, its columns, run.json, and the folder on disk with its database."""
