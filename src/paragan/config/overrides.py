"""`key.path=value` words over a recipe: another choice of a file drops the settings that belonged to the old one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from paragan.config import override_words
from paragan.core.settings_tree import COMMAND_LINE, Node, Problem

_CHOSEN = ("data", "model", "loss", "augment", "scheme")
_LISTS = ("penalties", "writers")


class Overrides:
    """Writes words over `tree` and remembers which settings of the recipe they dropped."""

    def __init__(self, tree: Node) -> None:
        self.tree = tree
        self._dropped: dict[str, dict[str, Any]] = {}  # section -> dotted key -> value in the recipe

    def write(self, word: str, problems: list[Problem]) -> None:
        """`loss=hinge` is short for `loss.name=hinge`, `penalties=r1` for `penalties=[r1]`."""
        for node in self._sections().values():
            if isinstance(node.value, str):  # the short form, so that a key may be written below it
                node.value = {"name": Node(node.place, node.value)}
        before = {key: dict(_entries(node)) for key, node in self._sections().items()}
        override_words.put(self.tree, word, problems)
        short = self._complete(word.partition("=")[0], before)
        for key, node in self._sections().items():
            if isinstance(node.value, dict) and key in before and _name(node.value) != _name(before[key]):
                self._drop(key, node.value, keeps_words=key != short)

    def warnings(self, settings: Mapping[str, Any]) -> Iterator[str]:
        """A line for each choice that changed other settings. settings: the whole config by dotted key.

        Settings of outside code are its own affair, whatever their names.
        """
        for section, dropped in self._dropped.items():
            lost = [
                f"{key}={json.dumps(value, separators=(',', ':'))}"
                for key, value in dropped.items()
                if (key in settings or ".arguments." in key) and settings.get(key) != value and not self._has(key)
            ]
            name = settings.get(f"{section}.name")
            if lost and "." not in str(name):
                yield f"warning: {section}.name={name} drops the recipe's {' '.join(lost)}; add what you want to keep"

    def _complete(self, key: str, before: Mapping[str, dict[str, Node]]) -> str | None:
        """Bring the short form that a word may have written at `key` into the full one; the key if it was one."""
        assert isinstance(self.tree.value, dict)
        node = self.tree.value.get(key)
        if key in _LISTS and node is not None and isinstance(node.value, (str, dict)):
            node.value = [Node(node.place, node.value)]
        chosen = self._sections().get(key)
        if chosen is not None and isinstance(chosen.value, str):
            chosen.value = {**before.get(key, {}), "name": Node(chosen.place, chosen.value)}
            return key
        return None

    def _drop(self, section: str, entries: dict[str, Node], keeps_words: bool) -> None:
        """Drop all but the name; of an optimiser, its arguments alone. keeps_words: what earlier words set stays."""
        dropped = self._dropped.setdefault(section, {})
        if section.endswith(".optimizer"):
            section, entries, keeps_words = f"{section}.arguments", _entries(entries.get("arguments")), True
        kept = {"name", *(key for key, node in entries.items() if keeps_words and node.place == COMMAND_LINE)}
        for key in [key for key in entries if key not in kept]:
            dropped[f"{section}.{key}"] = entries.pop(key).plain()

    def _has(self, key: str) -> bool:
        """Whether a word wrote the key again."""
        node: Node | None = self.tree
        for part in key.split("."):
            if node is not None and isinstance(node.value, list):
                node = node.value[int(part)] if int(part) < len(node.value) else None
            else:
                node = _entries(node).get(part)
        return node is not None

    def _sections(self) -> dict[str, Node]:
        """The nodes that choose a file by its name, by dotted key."""
        tree = _entries(self.tree)
        found = {key: tree[key] for key in _CHOSEN if key in tree}
        for side in ("g", "d"):
            player = _entries(tree.get(side))
            found |= {f"{side}.{key}": player[key] for key in ("optimizer", "strategy") if key in player}
        for key in _LISTS:
            items = tree[key].value if key in tree else None
            found |= {f"{key}.{i}": node for i, node in enumerate(items if isinstance(items, list) else ())}
        return found


def _entries(node: Node | None) -> dict[str, Node]:
    return node.value if node is not None and isinstance(node.value, dict) else {}


def _name(entries: Mapping[str, Node]) -> Any:
    return entries["name"].plain() if "name" in entries else None
