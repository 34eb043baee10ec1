"""The work of estimators: their contract and registry, batches of images, and passes of the
network."""
