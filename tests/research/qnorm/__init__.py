"""Norms of the loss where they are known, and what `qnorm_path` makes of them."""
