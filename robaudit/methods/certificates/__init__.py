"""Certified radii, of a network and of the network smoothed by noise (Cohen et al.; Smoothed robustness analysis)."""
