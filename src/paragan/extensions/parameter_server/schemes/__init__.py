"""Entries of the registry `schemes`."""
