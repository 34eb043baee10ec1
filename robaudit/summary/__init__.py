"""What the rows say: per estimator and noise level, per class, and which samples are not robust."""
