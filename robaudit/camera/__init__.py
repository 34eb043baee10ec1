"""Measure the noise of a camera from shots of still scenes: one photograph after the other of the
same thing, which differ in nothing but noise."""
