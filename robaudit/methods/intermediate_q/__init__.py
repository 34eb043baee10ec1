"""Losses between the average and the worst case (Rice et al.)."""
