"""Construction of a grid's trainer, workers and coordinator from a config."""
