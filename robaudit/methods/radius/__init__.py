"""The distance to the nearest change of class, relative to the difficulty of an image (Giraudon et
al.), and error curves."""
