"""Table 1 of the Colossal-AI pix2pix poster, measured on this machine: `python -m benchmarks.table1`."""
