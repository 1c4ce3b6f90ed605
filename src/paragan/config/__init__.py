"""The schema of a run, strict YAML, overrides and hints. Nothing here imports torch."""

from paragan.config.config_tree import compare, dump, outside_names, to_tree
from paragan.config.recipe import changes, parse_recipe, read_data_settings, read_recipe, used_code
from paragan.config.run_config import RunConfig, choose, default_scheme, player_key

__all__ = [
    "RunConfig",
    "changes",
    "choose",
    "compare",
    "default_scheme",
    "dump",
    "outside_names",
    "parse_recipe",
    "player_key",
    "read_data_settings",
    "read_recipe",
    "to_tree",
    "used_code",
]
