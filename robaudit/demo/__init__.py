"""Two small classifiers of handwritten digits that can be audited without any files of one's own."""
