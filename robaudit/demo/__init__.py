"""Two small networks for handwritten digits; ``robaudit train configs/training/digits-noise.yaml`` trains one of their kind."""
