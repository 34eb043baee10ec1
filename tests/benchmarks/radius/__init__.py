"""Smallest perturbations by robaudit and by two attack libraries, on real networks."""
