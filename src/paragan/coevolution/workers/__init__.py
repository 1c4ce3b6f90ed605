"""A grid over processes: coordinator, workers, membership and recovery."""
