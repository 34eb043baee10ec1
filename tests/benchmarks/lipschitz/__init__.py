"""Lipschitz bounds, the certificates from them, and moments in closed form, against what can be measured."""
