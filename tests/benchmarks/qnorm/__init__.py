"""`qnorm_path` beside plain copies and the published sampler on real networks: values at equal cost, convergence, and speed."""
