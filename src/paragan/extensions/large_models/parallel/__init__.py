"""Entries of the registry `parallel`."""
