"""Statistics over rows: summaries, classes, flagged samples, intervals."""
