"""A run, or several, as one self-contained page, and as Markdown."""
