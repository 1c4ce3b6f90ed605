"""Settings: mutated recipes, and mutated `key.path=value` words."""

from functools import cache
from pathlib import Path
from random import Random

from paragan import config
from paragan.core import registry
from tests.attacks.mutations import mutate_text

_TOKENS = (
    *("null", "~", "true", "no", "0", "-1", "1e999", ".nan", "-.inf", "0x" + "f" * 4000, "9" * 5000, "1_000", "0o17"),
    *("!!python/object/apply:os.system [id]", "!!binary aGk=", "&a [*a]", "*a", "<<: {a: 1}", "? [a]", "- - - -"),
    *("[" * 200, "{" * 200, "{a: {b: {c: 1}}}", "'", '"', "|", ">", "#", ":", "\t", "\x00", "\x85", "\u2028"),
    *("%YAML 9.9", "---", "...", "name: biggan", "name: mypkg.nets", "x" * 5000, "\U0001f600", "=", "a.b=c", "@", "`"),
)


@cache
def _recipes() -> tuple[str, ...]:
    return tuple(registry.find_source("recipes", name).read_text() for name in registry.names("recipes"))


@cache
def _keys() -> tuple[str, ...]:
    """Dotted keys of a full config; none of them is stored in a list."""

    def below(tree: object, path: str) -> list[str]:
        if not isinstance(tree, dict):
            return [path]
        return [key for name, item in tree.items() for key in [*below(item, f"{path}.{name}" if path else name)]]

    return tuple(below(config.to_tree(config.read_recipe("digits")), ""))


def fuzz_yaml(draws: Random, folder: Path) -> None:
    config.parse_recipe(mutate_text(draws, draws.choice(_recipes()), _TOKENS), "fuzzed.yaml", outside=())


def fuzz_overrides(draws: Random, folder: Path) -> None:
    words = []
    for _ in range(draws.randint(1, 4)):
        key, value = draws.choice(_keys()), draws.choice(_TOKENS)
        words.append(mutate_text(draws, f"{key}={value}", _TOKENS) if draws.random() < 0.5 else f"{key}={value}")
    config.read_recipe("digits", words, outside=())


TARGETS = {"yaml": fuzz_yaml, "overrides": fuzz_overrides}
