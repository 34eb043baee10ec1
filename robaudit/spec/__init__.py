"""The YAML spec: its models, reading and writing it, and explaining its errors."""
