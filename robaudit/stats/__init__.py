"""Statistics over rows."""
