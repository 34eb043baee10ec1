"""One or several runs as a self-contained page, and as Markdown."""
