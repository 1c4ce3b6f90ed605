"""Sections: the maps of a config and the options class of each.

Names of files, and whether their code may be imported, are checked here; other values in `validation`.
"""

import dataclasses
import os
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass

from paragan.config.field_types import Field, fields_of
from paragan.config.hints import list_hint, name_hint
from paragan.config.removed_settings import replacement_of, replacement_of_option
from paragan.core import outside_code, registry
from paragan.core.errors import ConfigError
from paragan.core.option_types import Category, Choice
from paragan.core.settings_tree import COMMAND_LINE, Node, Problem, SourceLocation, entries_of, shorten

_TRUST = "if you trust it, pass --trust (in Python: trust=True)"
_IN_LIST = re.compile(r"\.\d+(\.name)?$")  # ends the keys of names in a list


class _Everything:
    def __contains__(self, name: object) -> bool:
        return True


ANY = _Everything()
NAMES_ONLY = _Everything()  # outside code may be named, and is not read: its options are those that are written


def outside_of_run(trust: bool | outside_code.CodeFolder) -> Container[str]:
    """Return the outside code that a file of a run may name."""
    if isinstance(trust, outside_code.CodeFolder):
        return trust
    return ANY if trust else ()


@dataclass(frozen=True, kw_only=True)
class Section:
    """A map of a config, at a dotted key.

    kind: its options class; None for outside code that is not read. category, name: the chosen file
    whose options these are, if any.
    """

    path: str
    node: Node
    kind: type | None
    category: str = ""
    name: str = ""

    @property
    def fields(self) -> dict[str, Field]:
        """Fields of the options class by key."""
        return {} if self.kind is None else fields_of(self.kind)

    @property
    def keys(self) -> list[str]:
        """Valid keys of the map."""
        return [*(["name"] if self.category else []), *self.fields]

    def below(self) -> Iterator[tuple[str, Node, Field]]:
        """Yield dotted key, node and field of each options class, choice and name in it, also of those not written.

        A map with free keys, such as `players`, and a list have one for each entry. Short forms are replaced in the
        tree on the way, so a second call finds none: `penalties: r1` by a list of one, `loss: hinge` by a map.
        """
        for key, field in self.fields.items():
            node = self._node_of(key, field)
            if node is None:
                continue
            path = dotted(self.path, key)
            if field.is_map:
                for name, item in entries_of(node).items():
                    yield dotted(path, name), item, field
            elif field.inner is not None and not field.is_list:
                yield path, _expand(node, field), field
            elif field.inner is not None and isinstance(node.value, list):
                for number, item in enumerate(node.value):
                    yield dotted(path, str(number)), _expand(item, field), field

    def _node_of(self, key: str, field: Field) -> Node | None:
        """Return the node of a setting, one item replaced by a list; None where nothing can be below it."""
        node = entries_of(self.node).get(key)
        if node is None and dataclasses.is_dataclass(field.default):
            return Node(self.node.place, {})  # not of the tree: settings that are not written are looked at, too
        if node is None or (node.value is None and field.is_optional):
            return None
        if field.is_value_or_map and not isinstance(node.value, dict):
            return None
        # `penalties: r1` is a list of one name; where a list of plain values is expected, text is a mistake
        single = dict if field.inner is None else (str, dict)
        if field.is_list and isinstance(node.value, single):
            node.value = [Node(node.place, node.value)]
        return node


def _expand(node: Node, field: Field) -> Node:
    """Return the node, text replaced by a map, with the default name of a choice without one.

    Text stands for the `name`, or for the setting that an options class calls `SHORT`.
    """
    if field.inner is str:
        return node
    short = "name" if field.inner is Choice else vars(field.inner).get("SHORT", "name")
    if isinstance(node.value, str) and (field.inner is Choice or short in fields_of(field.inner)):
        node.value = {short: Node(node.place, node.value)}
    if isinstance(field.default, Choice) and isinstance(node.value, dict):
        node.value.setdefault("name", Node(node.place, field.default.name))
    return node


def choices(section: Section) -> Iterator[Section]:
    """Yield the sections below that are a chosen file (`loss`), or whose `name` is one (`g.optimizer`)."""
    for path, node, field in section.below():
        inner = Section(path=path, node=node, kind=field.inner)
        is_named = field.category is None and "name" in inner.fields and inner.fields["name"].category
        if field.inner is Choice or is_named:
            yield inner
        elif field.category is None:
            yield from choices(inner)


class Sections(dict[str, Section]):
    """Sections of a tree by dotted key, also those that are not written.

    problems: names that cannot be used. Names of files in the tree become absolute paths. outside:
    the outside code that may be named; other names are refused before anything is imported or read.
    """

    def __init__(self, kind: type, tree: Node, outside: Container[str]) -> None:
        super().__init__()
        self.problems: list[Problem] = []
        self._outside = outside
        self._add(Section(path="", node=tree, kind=kind))

    def _add(self, section: Section) -> None:
        self[section.path] = section
        for key, field in section.fields.items():
            if field.runs_code and key in entries_of(section.node):
                self._check_program(dotted(section.path, key), entries_of(section.node)[key])
        for path, node, field in section.below():
            if field.category is None:
                self._add(Section(path=path, node=node, kind=field.inner))
            elif field.inner is Choice:
                self._add_choice(field.category, path, node)
            else:
                self._resolve(field.category, path, node)

    def _add_choice(self, category: Category, path: str, node: Node) -> None:
        key = dotted(path, "name")
        if not isinstance(node.value, dict):
            self._add_invalid(node, path, category)
        elif "name" not in node.value:
            text = f"{key} is required; choose {registry.describe_choices(category.name)}"
            self.problems.append(Problem(node.place, "", text))
        elif (name := self._resolve(category, key, node.value["name"])) is not None:
            try:
                kind = None if self._is_unread(name) else registry.options(category.name, name)
            except ConfigError as error:
                self.problems.append(Problem(node.value["name"].place, key, str(error)))
            else:
                self._add(Section(path=path, node=node, kind=kind, category=category.name, name=name))
        elif replacement_of(f"{category.name}.{node.value['name'].value}") is not None:
            for option, value in node.value.items():  # those that went with the name
                at = dotted(path, option)
                instead = replacement_of_option(at, category.name, str(node.value["name"].value), option)
                if instead is not None:
                    self.problems.append(removed_problem(at, value, instead))

    def _resolve(self, category: Category, key: str, node: Node) -> str | None:
        """Return the name in a node, a .py file as absolute path; None if it cannot be used.

        In this order: outside code exists, it is trusted, the name is one of the category. The last reads the file.
        """
        if not isinstance(node.value, str):
            self._add_invalid(node, key, category)
            return None
        written = node.value
        if outside_code.is_file_name(written):
            node.value = outside_code.absolute_path(written, node.place.source)
            if isinstance(self._outside, outside_code.CodeFolder):
                node.value = self._outside.locate(node.value)
        if node.value in category.also or self._is_unread(node.value):
            return node.value
        try:
            if "." in node.value and isinstance(self._outside, outside_code.CodeFolder):
                self._outside.require(node.value)
            elif outside_code.is_file_name(written):
                outside_code.require_file(node.value)
            if "." in node.value and not self._is_trusted(node):
                raise ConfigError(self._untrusted(written, node.value))
            registry.find_source(category.name, node.value, category.also)
            return node.value
        except ConfigError as error:
            problem = Problem(node.place, key, _describe_bad_name(category.name, written, key, node.place, str(error)))
            if (instead := replacement_of(f"{category.name}.{written}")) is not None:
                problem = removed_problem(key, node, instead, f"{registry.noun(category.name)} {written!r}")
            self.problems.append(problem)
            return None

    def _untrusted(self, written: str, path: str) -> str:
        """Return the message about outside code that may not be imported."""
        if isinstance(self._outside, outside_code.CodeFolder):
            file = outside_code.source_files(path).get(path, path)
            return f"{file} is not a file that the run has used, by its sha256; {_TRUST}"
        problem = f"{written!r} is code outside paragan, which this file may not import"
        return f"{problem}; {_TRUST}, or --code DIR to import from a folder only what the run has used"

    def _check_program(self, key: str, node: Node) -> None:
        if isinstance(node.value, str) and not self._is_trusted(node):
            text = f"{node.value!r} is a program of torch.export, whose code this file may not run; {_TRUST}"
            self.problems.append(Problem(node.place, key, text))

    def _is_trusted(self, node: Node) -> bool:
        """Return whether outside code may run: its name is typed on the command line, or allowed by the caller."""
        return node.place == COMMAND_LINE or node.value in self._outside

    def _is_unread(self, name: str) -> bool:
        return "." in name and self._outside is NAMES_ONLY

    def _add_invalid(self, node: Node, path: str, category: Category) -> None:
        valid = registry.describe_choices(category.name, category.also)
        self.problems.append(Problem(node.place, path, f"must be {valid}, not {shorten(node.plain())}"))


def _describe_bad_name(category: str, name: str, key: str, place: SourceLocation, error: str) -> str:
    """Return the error of a name, or what is likely meant: another name, a list, a path of data, a file `NAME.py`."""
    if (hint := name_hint(category, name, key)) is not None:
        return hint
    if _IN_LIST.search(key) and (as_list := list_hint(name)):
        return f"must be one name, not {name!r}{as_list}"
    if category == "datasets" and (os.sep in name or os.path.exists(name)) and not outside_code.is_file_name(name):
        return (
            f"{name!r} is a path, not a data set's name; for images in it, train the recipe own with data.path={name}"
        )
    file = f"{name.replace('.', '/')}.py"
    is_missing = error.startswith((f"unknown {registry.noun(category)} {name!r}", "cannot import "))
    if is_missing and os.path.isfile(outside_code.absolute_path(file, place.source)):
        problem = error.partition(";")[0].partition(":")[0]
        return f"{problem}; to use the file {file}, pass {key}={file}"
    return error


def removed_problem(path: str, node: Node, instead: str, value: str = "") -> Problem:
    """Return the problem of a removed setting, or of one whose `value` was removed; null can always be left out."""
    instead = "leave it out" if node.value is None else instead
    removed = f"{path} {value}".rstrip() + f" (line {node.place.line}: {instead})"
    return Problem(node.place, path, f"{value or 'this setting'} was removed; {instead}", removed)


def dotted(path: str, key: str) -> str:
    """Return the dotted key of a key below another; `path` is empty at the top."""
    return f"{path}.{key}" if path else key
