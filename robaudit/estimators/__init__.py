"""The estimators: one file for each and its variants, registered through entry points."""
