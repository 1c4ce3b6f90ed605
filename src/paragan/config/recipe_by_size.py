"""Choice of a recipe by the size of the images: `train own data.size=256` trains the recipe `own-256`.

A packaged recipe may have the key `by_size`, a map from the shorter side of the images to the recipe
that is for images from this side on.
"""

from contextlib import suppress

from paragan.core import registry
from paragan.core.option_types import height_and_width
from paragan.core.settings_tree import COMMAND_LINE, Node, entries_of, node_at

_KEY = "by_size"


def take_by_size(recipe: str, tree: Node) -> dict[int, str]:
    """Remove the key from the tree of a recipe and return it; empty for a file of the user."""
    if recipe not in registry.names("recipes"):
        return {}
    return {int(side): name.plain() for side, name in entries_of(entries_of(tree).pop(_KEY, None)).items()}


def larger_recipe(by_size: dict[int, str], size: object) -> str:
    """Return the recipe for images of a size, the value of `data.size`; empty if it is the one that has `by_size`."""
    shorter = 0
    with suppress(ValueError):  # another text, which the validation describes
        shorter = min(height_and_width(str(size)))
    fitting = [side for side in by_size if side <= shorter]
    return by_size[max(fitting)] if fitting else ""


def replaced_by(by_size: dict[int, str], tree: Node) -> str:
    """Return the recipe for the images of a tree; empty where it is the tree's, or the command line names a model."""
    size = node_at(tree, "data.size")
    model = node_at(tree, "model.name")
    names_model = model is not None and model.place == COMMAND_LINE
    return "" if size is None or names_model else larger_recipe(by_size, size.value)


def replacement_line(recipe: str, larger: str, tree: Node) -> str:
    """Return the line about a recipe that another one replaces, with the setting that keeps it."""
    size, model = (node_at(tree, key) for key in ("data.size", "model.name"))
    assert size is not None and model is not None
    return f"{recipe} data.size={size.value}: using the recipe {larger}; model={model.value} keeps the small networks"
