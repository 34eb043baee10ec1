"""The estimators: one file each with its variants, registered through entry points."""
