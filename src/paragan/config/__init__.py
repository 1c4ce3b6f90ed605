"""The schema of a run, strict YAML, overrides and hints. Nothing here imports torch."""

from paragan.config.run_config import (
    RunConfig,
    changes,
    choose,
    compare,
    differences,
    dump,
    outside_names,
    parse_recipe,
    read_recipe,
    read_with_places,
    to_tree,
)

__all__ = [
    "RunConfig",
    "changes",
    "choose",
    "compare",
    "differences",
    "dump",
    "outside_names",
    "parse_recipe",
    "read_recipe",
    "read_with_places",
    "to_tree",
]
