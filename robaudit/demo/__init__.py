"""Two small classifiers of handwritten digits that can be audited without any other files."""
