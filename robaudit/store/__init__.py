"""The run on disk: its state, its folder, and the rows read back from it."""
