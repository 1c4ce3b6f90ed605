"""Parameters of tests that run in `./run test all` only: long ones, or more of what others of the same test cover."""

import pytest


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)
