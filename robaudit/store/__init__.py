"""The run on disk: its state, its folder, and the outputs made from it."""
