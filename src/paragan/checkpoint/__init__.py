"""Checkpoints on disk: written completely or not at all, verified when read."""
