"""The schema of a run, strict YAML, overrides and hints. Nothing here imports torch."""

from paragan.config.run_config import (
    RunConfig,
    changes,
    choose,
    compare,
    differences,
    dump,
    load,
    load_with_places,
    loads,
    outside_names,
    to_tree,
)

__all__ = [
    "RunConfig",
    "changes",
    "choose",
    "compare",
    "differences",
    "dump",
    "load",
    "load_with_places",
    "loads",
    "outside_names",
    "to_tree",
]
