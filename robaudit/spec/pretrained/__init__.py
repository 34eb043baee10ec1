"""Read a trained model's own files: architecture, normalisation, size of the images, class names."""
