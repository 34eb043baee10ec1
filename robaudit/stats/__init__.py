"""Statistics over rows: summaries, classes, flagged samples, agreement of estimators, intervals."""
