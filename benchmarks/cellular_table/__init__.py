"""Cellular training on one core, on workers and in an upstream-style loop, measured:
`python -m benchmarks.cellular_table`."""
