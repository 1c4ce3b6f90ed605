"""docs/reference/api.md: the public names of the library with their signatures and docstrings."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator
from functools import cached_property

import paragan

_HEAD = """# Python API

Every name of `import paragan as pg`. [From Python](../tutorials/python.md) and
[In your own loop](../how-to/networks/pieces.md) show them in use,
[The ParaGAN poster's program](../how-to/machines/poster.md) the manager and the estimator.
`pg.config.read_recipe("digits", ["train.kimg=10"])` reads the config of a recipe with changed settings.
"""


def page() -> str:
    homes: dict[str, list[str]] = {}
    for name in sorted(dir(paragan), key=str.lower):
        if not name.startswith("__"):
            homes.setdefault(_module(getattr(paragan, name)), []).append(name)
    blocks = [_HEAD.strip()]
    for home in sorted(homes):
        blocks.append(f"## {home}")
        blocks += [block for name in homes[home] for block in _entry(name, getattr(paragan, name))]
    return "\n\n".join(blocks) + "\n"


def _entry(name: str, thing: object) -> Iterator[str]:
    """Yield a heading, the signature, the docstring and the methods."""
    yield f"### {name}"
    if signature := _signature(name, thing):
        yield f"```text\n{signature}\n```"
    if text := _text(thing):
        yield text
    if inspect.isclass(thing) and not _is_error(thing):
        listed = [_method(n, m) for n, m in _members(thing).items() if not n.startswith("_") and _text(m)]
        if listed:
            yield "\n".join(listed)


def _members(thing: type) -> dict[str, object]:
    """Attributes of a class, and those that it inherits from classes that this page does not list."""
    public = {id(getattr(paragan, name)) for name in dir(paragan)}
    found: dict[str, object] = {}
    for base in reversed(thing.__mro__):
        if base is thing or (base.__module__.startswith("paragan") and id(base) not in public):
            found |= vars(base)
    return found


def _signature(name: str, thing: object) -> str:
    """The signature with defaults and annotations as in the source; none for enums and errors."""
    if isinstance(thing, paragan.Loss):
        return ""
    if inspect.isclass(thing) and (_is_error(thing) or hasattr(thing, "__members__") or hasattr(thing, "_is_protocol")):
        return f"members: {', '.join(thing.__members__)}" if hasattr(thing, "__members__") else ""
    signature = inspect.signature(thing)  # type: ignore[arg-type]
    written = _annotations(thing)
    parameters = [_parameter(p, written) for p in signature.parameters.values() if not p.name.startswith("_")]
    end = f" -> {written['return']}" if "return" in written and not inspect.isclass(thing) else ""
    one = f"{name}({', '.join(parameters)}){end}"
    return one if len(one) <= 100 else f"{name}(\n" + "".join(f"    {p},\n" for p in parameters) + f"){end}"


def _annotations(thing: object) -> dict[str, str]:
    """Annotations of a function, or of the fields and the constructor of a class, as written in the source."""
    classes = (
        [base for base in reversed(thing.__mro__) if base.__module__.startswith("paragan")]
        if inspect.isclass(thing)
        else []
    )
    written: dict[str, str] = {}
    for each in classes or [thing]:
        definition = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        parts = definition.body if isinstance(definition, ast.ClassDef) else [definition]
        for part in parts:
            if isinstance(part, ast.AnnAssign):
                written[ast.unparse(part.target)] = ast.unparse(part.annotation)
            elif isinstance(part, ast.FunctionDef) and (part is definition or part.name == "__init__"):
                arguments = [node for node in ast.walk(part.args) if isinstance(node, ast.arg) and node.annotation]
                written |= {argument.arg: ast.unparse(argument.annotation) for argument in arguments}
                if part.returns is not None:
                    written["return"] = ast.unparse(part.returns)
    return {name: text.strip("'") for name, text in written.items()}


def _parameter(parameter: inspect.Parameter, written: dict[str, str]) -> str:
    star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    annotation = f": {written[parameter.name]}" if parameter.name in written else ""
    text = f"{star}{parameter.name}{annotation}"
    default = parameter.default
    if default is inspect.Parameter.empty:
        return text
    plain = isinstance(default, (int, float, str, bool, tuple, type(None))) and not _holds_objects(default)
    return f"{text} = {default!r}" if plain else f"{text} = …"


def _holds_objects(value: object) -> bool:
    return isinstance(value, tuple) and any(not isinstance(item, (int, float, str)) for item in value)


def _method(name: str, member: object) -> str:
    """One item of a list: the first paragraph of the docstring."""
    call = "" if isinstance(member, (property, cached_property)) else "()"
    return f"- `{name}{call}`: {' '.join(_text(member).split(chr(10) * 2)[0].split())}"


def _text(thing: object) -> str:
    """The docstring, unless a dataclass or a base class generates it; of a loss, that of its module."""
    if isinstance(thing, paragan.Loss):
        return inspect.cleandoc(inspect.getmodule(thing.d).__doc__)
    own = vars(thing).get("__doc__") if inspect.isclass(thing) else getattr(thing, "__doc__", None)
    if not own or not (inspect.isclass(thing) or callable(thing) or _wraps(thing)):
        return ""
    generated = dataclasses.is_dataclass(thing) and inspect.isclass(thing) and own.startswith(f"{thing.__name__}(")
    return "" if generated else inspect.cleandoc(own)


def _module(thing: object) -> str:
    """The module that defines a name; a loss is an object of the module of its functions."""
    return (thing.d if isinstance(thing, paragan.Loss) else thing).__module__


def _wraps(thing: object) -> bool:
    return isinstance(thing, (property, cached_property, classmethod, staticmethod))


def _is_error(thing: object) -> bool:
    return inspect.isclass(thing) and issubclass(thing, Exception)
