"""The first spec: a few answers become a YAML file that says what it does."""
