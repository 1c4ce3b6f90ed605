"""Checkpoints on disk: written whole or not at all, verified when read."""
