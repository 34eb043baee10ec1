"""What people and pipelines read of a run: tables, pages, pictures, and the formats of CI
systems."""
