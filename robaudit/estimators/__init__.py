"""The estimators: one small file each, registered through entry points."""
