"""Two runs on the same samples: what changed between them, and how certain that is."""
