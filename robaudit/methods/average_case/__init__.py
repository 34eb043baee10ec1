"""The probability that noise keeps the class (Han et al., Average-case robustness), and rare
failures."""
