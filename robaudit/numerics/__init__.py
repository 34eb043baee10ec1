"""Tensors in, tensors out: the numerical core, which knows no model, file or command line."""
