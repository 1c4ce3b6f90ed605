"""Kinds of clusters: one file each, with a `TARGET`."""
