"""Certified radii, of a network and of the network smoothed by noise (Cohen et al.; Smoothed
robustness analysis).

It imports the family radius: `smoothed_attack` looks for flips of the smoothed network by the same
search as `radius_attack`.
"""
