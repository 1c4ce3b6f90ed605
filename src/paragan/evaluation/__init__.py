"""Evaluation of a generator: fixed samples, features, metrics and scores."""
