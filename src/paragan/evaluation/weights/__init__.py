"""Weights of the packaged extractors, and `extractors.json`: their sha256, what they were trained on, accuracies."""
