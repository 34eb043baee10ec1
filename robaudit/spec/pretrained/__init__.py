"""What a trained model's own files say about it: architecture, normalisation, size of the images, class names."""
