"""Populations of games on a grid, and their coevolution (Lipizzaner, Mustangs): `grid.shape`.

For diversity from many CPU cores. State: measured beside the published implementation on CPUs, killed at random in
the tests (docs/cellular.md); a core per worker on many hosts was not run.
"""
