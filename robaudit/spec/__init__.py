"""The YAML spec: its fields, the frozen models, reading and explaining it (import from the modules; this package is empty)."""
