"""What the docs name exists: settings, recipes, presets, verbs and features of scores."""

import dataclasses
import re
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from paragan.cli.verbs import VERBS
from paragan.config import RunConfig
from paragan.core import registry
from paragan.core.option_types import Category, Choice

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
PAGES = sorted(page for page in PAGES if page.stem not in ("api", "journal"))  # of the past a journal may tell
FILES = (".json", ".jsonl", ".yaml", ".py", ".md", ".html", ".safetensors")
SETTING = re.compile(r"([a-z_]+(?:\.[a-z_0-9]+)+)(?:=.*)?", re.S)
OBJECTS = {"g.latent", "g.num_classes", "scheme.step"}  # attributes of Python objects
OBJECTS |= {"init.prefix", "init.partial"}  # of both players, in the table of their keys
FENCED = re.compile(r"^```(?:sh|text)?\n(.*?)^```", re.S | re.M)
PLACEHOLDERS = {"NAME", "RECIPE", "RUN"}


def known(kind: Any, at: str = "") -> set[str]:
    """Dotted paths below a type of the config, patterns where a name is free."""
    if get_origin(kind) is Annotated:
        chosen, *marks = get_args(kind)
        marks = [mark for mark in marks if isinstance(mark, Category)]
        if chosen is Choice and marks:
            shelves = [registry.options(marks[0].name, name) for name in registry.names(marks[0].name)]
            return {at, rf"{at}\.name"}.union(*(known(options, at) for options in shelves))
        return known(chosen, at)
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        inner = (
            known(hints[field.name], rf"{at}\.{field.name}" if at else field.name) for field in dataclasses.fields(kind)
        )
        return {at}.union(*inner)
    if get_origin(kind) is dict:
        return {at, rf"{at}\.[a-z_0-9]+"}
    below = at + (r"(\.\d+)?" if get_origin(kind) is tuple else "")
    return {at}.union(
        *(known(argument, below) for argument in get_args(kind) if isinstance(argument, type) or get_args(argument))
    )


HEADS = {field.name for field in dataclasses.fields(RunConfig)}
KNOWN = [re.compile(path) for path in known(RunConfig) if path]


def commands(page: Path) -> list[str]:
    """Calls of paragan, in blocks and in inline code, without comments."""
    text = page.read_text(encoding="utf-8")
    lines = [line for block in FENCED.findall(text) for line in block.splitlines()] + inline(text)
    found = (re.search(r"(?:^|[;&(] *|-m )((?:\./run|paragan) [a-z].*)", line.strip()) for line in lines)
    return [re.split(r"\s#|\s{2,}", match.group(1))[0] for match in found if match]


def inline(text: str) -> list[str]:
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


def settings(page: Path) -> set[str]:
    lines = [*inline(page.read_text(encoding="utf-8")), *commands(page)]
    found = (SETTING.fullmatch(word.strip(",.;:()'\"")) for line in lines for word in line.split())
    paths = {match.group(1) for match in found if match}
    return {path for path in paths if path.split(".")[0] in HEADS and not path.endswith(FILES)} - OBJECTS


def test_known_paths_match_the_config():
    def is_known(path):
        return any(one.fullmatch(path) for one in KNOWN)

    good = (
        "train.kimg",
        "g.optimizer.lr",
        "d.optimizer.arguments.eps",
        "grid.cells.0.diet",
        "data.held_out",
        "penalties.0.weight",
    )
    assert all(map(is_known, good))
    assert not any(map(is_known, ("train.epochs", "g.lr", "data.nothing", "grid.cells.0.nothing")))


def unknown(page: Path) -> list[str]:
    """What a page names that does not exist: settings, features, and words of commands."""
    found = [path for path in settings(page) if not any(one.fullmatch(path) for one in KNOWN)]
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"fd\[([\w-]+)\]", text))
    former = {"mnist_cnn", "cifar_resnet56"} if "no longer in the package" in " ".join(text.split()) else set()
    found += named - set(registry.names("features")) - PLACEHOLDERS - former
    recipes, presets = registry.names("recipes"), registry.names("presets")
    for command in commands(page):
        _, verb, *rest = command.split()
        if command.startswith("./run") and verb in ("test", "check", "docs"):
            continue
        wrong = [] if verb in VERBS else [verb]
        if verb in ("train", "config") and rest and re.fullmatch(r"[a-z][\w-]*", rest[0]):
            wrong += {rest[0]} - set(recipes)
        wrong += {word.removeprefix("preset=") for word in rest if word.startswith("preset=")} - set(presets)
        found += [f"{word}: {command}" for word in wrong]
    return found


def test_every_name_in_the_docs_exists():
    assert sum(len(commands(page)) for page in PAGES) > 80 and len(set().union(*map(settings, PAGES))) > 50
    assert {str(page): names for page in PAGES if (names := unknown(page))} == {}
