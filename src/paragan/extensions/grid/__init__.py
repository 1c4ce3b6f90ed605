"""Populations of games on a grid, and their coevolution (Lipizzaner, Mustangs): `grid.shape`.

For diversity from many CPU cores. State: measured in turn with the published implementation on CPUs; workers are
killed at random in the tests (docs/how-to/machines/cellular.md). A core per worker on many hosts was not run.
"""
