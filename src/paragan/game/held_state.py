"""What custom code holds in attributes, closures and globals: numbers and tensors that no checkpoint has."""

import hashlib
import itertools
import random
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from types import CodeType, FunctionType, MemberDescriptorType, MethodType, SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn

from paragan.core.printable import join_some
from paragan.game.gradient_flow import REFUSALS, notice

_MAX_VALUES = 10_000  # in all, and in one container
_MAX_NAMED = 3
_MAX_BYTES = 1 << 14  # of an array whose values are compared
_REGISTERED = ("_modules", "_parameters", "_buffers")  # attributes of networks
_PACKAGED = ("paragan", "torch")  # whose layers keep no state outside `_REGISTERED`
_Found = tuple[str, object, str]  # a name, a value, and the package of the code that holds it


class HeldState:
    """Numbers, text, tensors and generators that an object holds now, by name.

    Walks into containers and networks, whatever code made them. Of functions and other objects only into those of the
    owner's package: attributes, closures, defaults, and the globals that functions use; of layers, into the attributes
    of custom ones, each with its own package. saved: objects that checkpoints have, or that hold them; left out.
    """

    def __init__(self, owner: object, saved: Iterable[object] = ()) -> None:
        self._owner = owner
        self._saved = list(saved)
        self.tensors: list[Tensor] = []  # all that were met, so that no new one has the id of an old one
        self._values = self._read()

    def changed(self, of_tensors: bool = True) -> str:
        """Return the names of what has changed since, as text; empty if nothing has. of_tensors: also of these."""
        before = self._values
        now = self._read()
        keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        if not of_tensors:  # which are pairs; all else is text
            keys = [key for key in keys if not isinstance(now.get(key, before.get(key)), tuple)]
        return join_some(list(dict.fromkeys(name for name, _ in keys)), _MAX_NAMED)

    def notice_changes(self, what: str) -> None:
        """Warn of what a loss or penalty has changed. what: its name in the message."""
        if names := self.changed():
            notice(
                f"{what} changes {names}, which no checkpoint has, so a resumed run is not exact where its values "
                "depend on it: hold it in the state of a paragan.Penalty, as a tensor, such as "
                "self.state = {'n': torch.zeros(())}"
            )

    def _read(self) -> dict[tuple[str, int], object]:
        """Return what is held, by name and its number among those of the name: two closures may both hold an `n`."""
        values: dict[tuple[str, int], object] = {}
        num_named: Counter[str] = Counter()
        pending: list[_Found] = [("", self._owner, _package_of(self._owner))]
        seen = set(map(id, self._saved))
        while pending and len(values) < _MAX_VALUES:
            name, value, package = pending.pop()
            with suppress(*REFUSALS):  # errors of a proxy without its object, or of a weight of a lazy layer
                if id(value) in seen:
                    continue
                if (held := self._held(value)) is not None:
                    values[name, num_named[name]] = held
                    num_named[name] += 1
                else:
                    seen.add(id(value))
                    pending += _inside(name, value, package)
        return values

    def _held(self, value: object) -> tuple[int, int] | str | None:
        """Return a tensor as (identity, version), another value as text; None for an object that holds others."""
        if isinstance(value, Tensor):
            self.tensors.append(value)
            return id(value), 0 if value.is_inference() else value._version
        return _text(value)


def _text(value: object) -> str | None:
    """Return a number, text, array or the state of a generator as text; None for other objects."""
    match value:
        case None | bool() | int() | float() | complex() | str() | bytes() | bytearray():
            return repr(value)
        case np.generic() | itertools.count() | array():
            return repr(value)
        case np.ndarray():
            # of a large one only the replacement is noticed: its values may be a whole data set
            values = hashlib.sha256(value.tobytes()).hexdigest() if value.nbytes <= _MAX_BYTES else id(value)
            return f"{value.dtype} {value.shape} {values}"
        case torch.Generator():
            return repr(value.get_state().numpy().tobytes())
        case np.random.Generator():
            return repr(value.bit_generator.state)
        case np.random.RandomState():
            return repr(value.get_state(legacy=False))
        case random.Random():
            return repr(value.getstate())
    return None


def _inside(name: str, value: object, package: str) -> Iterator[_Found]:
    """Yield what an object of custom code, a container or a network holds."""
    match value:
        case dict():  # other mappings may read a file at each access
            yield from _entries(name, itertools.islice(value.items(), _MAX_VALUES), package)
        case SimpleNamespace():
            yield from _entries(name, vars(value).items(), package)
        case list() | tuple() | set() | deque():
            yield from ((f"{name}[{i}]", item, package) for i, item in enumerate(itertools.islice(value, _MAX_VALUES)))
        case partial():
            yield from ((name, part, package) for part in (value.func, value.args, value.keywords))
        case MethodType():
            yield from ((name, part, package) for part in (value.__self__, value.__func__))
        case FunctionType() if _package_of(value) == package:
            yield from _variables(value, package)
        case nn.Module():
            for registered in _REGISTERED:
                yield name, vars(value).get(registered), package  # a traced network has none
            if (own := _package_of(value)) not in _PACKAGED:
                yield from _attributes(name, value, own)
        case _ if _package_of(value) == package:
            yield from _attributes(name, value, package)


def _variables(function: FunctionType, package: str) -> Iterator[_Found]:
    """Yield what a function holds: defaults, attributes, and the variables of its closure and module that it uses."""
    for held in (function.__defaults__, function.__kwdefaults__, vars(function)):
        yield function.__name__, held, package
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # a variable without a value yet
            yield name, cell.cell_contents, package
    for name in _names(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name], package


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names of attributes and globals in code, and in the functions and comprehensions inside."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _attributes(name: str, value: object, package: str) -> Iterator[_Found]:
    """Yield the attributes of an object and of its classes."""
    attributes = {key: held for key, held in getattr(value, "__dict__", {}).items() if key not in _REGISTERED}
    yield from _entries(name, attributes.items(), package)
    for kind in type(value).__mro__:
        if kind.__module__.partition(".")[0] == package:
            slots = [key for key, held in vars(kind).items() if isinstance(held, MemberDescriptorType)]
            yield from _entries(name, ((key, getattr(value, key, None)) for key in slots), package)
            yield from _entries(name, vars(kind).items(), package)


def _entries(name: str, entries: Iterable[tuple[object, object]], package: str) -> Iterator[_Found]:
    for key, value in entries:
        is_name = isinstance(key, str) and key.isidentifier()
        yield f"{name}.{key}".lstrip(".") if is_name else f"{name}[{key!r}]", value, package


def _package_of(value: object) -> str:
    """Return the top package of the code of a function or object."""
    if isinstance(value, partial):
        return _package_of(value.func)
    if isinstance(value, MethodType):
        return _package_of(value.__self__)
    module = value.__module__ if isinstance(value, FunctionType) else type(value).__module__
    return module.partition(".")[0]
