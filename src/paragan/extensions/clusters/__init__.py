"""Jobs on a cluster (`paragan launch`): the file that the cluster's program takes, as text.

For Slurm, Kubernetes, Ray and mpiexec. State: mpiexec and Slurm ran jobs in the tests, where they are installed; the
files of Kubernetes and Ray were checked, and never submitted. A kind of cluster is one file of `targets/` that
defines `TARGET`.
"""

import importlib
from pathlib import Path

from paragan.core.errors import ConfigError
from paragan.extensions.clusters.job import ClusterJob as ClusterJob, Target as Target


def target_names() -> list[str]:
    """Return the names of all targets, sorted."""
    return sorted(path.stem for path in Path(__file__).parent.glob("targets/[a-z]*.py"))


def load_target(name: str) -> Target:
    """Return a target by name; `ConfigError` with the valid names."""
    if name not in target_names():
        raise ConfigError(f"unknown target {name!r}; choose one of {', '.join(target_names())}")
    target: Target = importlib.import_module(f"{__name__}.targets.{name}").TARGET
    return target
