"""Marks of tests: those of `./run test all` only (long ones, or more of what others cover), and those that need MPI."""

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

_OF_WHEEL = Path(sys.executable).parent / "mpiexec"
MPIEXEC = str(_OF_WHEEL) if _OF_WHEEL.exists() else shutil.which("mpiexec")
_LACKING = "mpi4py" if find_spec("mpi4py") is None else "" if MPIEXEC else "mpiexec"
MPI = pytest.mark.skipif(bool(_LACKING), reason=f"no {_LACKING}: pip install 'paragan[mpi]'")


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)
