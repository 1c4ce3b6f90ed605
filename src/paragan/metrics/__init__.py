"""Metrics of a score, one file each. They compare features or pairs of images."""
