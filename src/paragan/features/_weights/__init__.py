"""Weights of the packaged extractors, each with a JSON file: sha256, training data, accuracies."""
