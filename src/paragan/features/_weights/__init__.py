"""Weights of the packaged extractors, and for each a JSON file: sha256, what it was trained on, accuracies."""
