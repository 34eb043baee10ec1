"""What fits a budget: which estimator, how many draws, how many images?"""
