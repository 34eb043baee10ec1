"""What can be audited without any file of one's own: two small classifiers of handwritten digits."""
