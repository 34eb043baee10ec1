"""The numerical core: tensors in, tensors out, without any knowledge of models, files or the
command line."""
