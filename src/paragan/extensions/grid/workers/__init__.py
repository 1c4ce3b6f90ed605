"""Grids over several processes: coordinator, workers, membership and recovery."""
