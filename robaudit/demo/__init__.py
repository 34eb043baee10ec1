"""Two small classifiers of handwritten digits, which can be audited without any other files."""
