"""Is an estimator right for this model and these data: how far is it from converged Monte Carlo with noise of its own?"""
