"""What custom code holds: which changes are found, and objects that refuse to be read."""

from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from paragan.game.held_state import HeldState
from paragan.game.structure import changed_layers, structure_of

CALLS = [0]


class Owner:
    def __init__(self, held):
        self.held = held


@dataclass(slots=True)
class Slots:
    n: int = 0


def in_a_comprehension():
    return [CALLS.append(number) for number in range(2)]


def in_a_function_inside():
    def inner():
        CALLS[0] += 1

    inner()


CHANGES = {
    "namespace": (SimpleNamespace(n=0), lambda held: setattr(held, "n", 1), "held.n"),
    "slots": (Slots(), lambda held: setattr(held, "n", 1), "held.n"),
    "counter": (Counter(a=1), lambda held: held.update("a"), "held.a"),
    "bytes": (bytearray(3), lambda held: held.append(1), "held"),
    "array": (array("d", [1.0]), lambda held: held.append(1.0), "held"),
    "generator of numpy's old kind": (np.random.RandomState(0), lambda held: held.rand(), "held"),
    "equal bytes of another shape": (np.zeros(4), lambda held: setattr(held, "shape", (2, 2)), "held"),
    "weight": (nn.Linear(2, 2), lambda held: nn.init.zeros_(held.weight), "held.weight"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_of_what_an_attribute_holds_is_named(kind):
    held, change, name = CHANGES[kind]
    state = HeldState(Owner(held))
    assert state.changed() == ""
    change(held)
    assert state.changed() == name


@pytest.mark.parametrize("function", [in_a_comprehension, in_a_function_inside])
def test_globals_used_in_code_inside_a_function_are_followed(function):
    state = HeldState(function)
    function()
    assert "CALLS[" in state.changed()


def counting(start):
    n = start

    def count():
        nonlocal n
        n += 1

    return count


def bound(start):
    return Counting(start).count


class Counting:
    def __init__(self, start):
        self.n = start

    def count(self):
        self.n += 1


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize(
    ("make", "name"),
    [(counting, "n"), (bound, "held[{}].n"), (lambda start: partial(counting(start)), "n")],
    ids=["closure", "method", "partial"],
)
def test_each_of_several_values_of_one_name_is_compared(make, name, number):
    functions = [make(start) for start in range(3)]
    state = HeldState(Owner(functions))
    functions[number]()
    assert state.changed() == name.format(number)


def test_a_number_with_the_name_of_a_tensor_is_named_where_tensors_are_left_out():
    functions = [counting(0), counting(torch.zeros(()))]
    state = HeldState(Owner(functions))
    functions[1]()
    assert state.changed(of_tensors=False) == "" and state.changed() == "n"
    functions[0]()
    assert state.changed(of_tensors=False) == "n"


class Files(Mapping):
    """A mapping that reads a file for each item."""

    def __init__(self):
        self.num_read = 0

    def __len__(self):
        return 3

    def __iter__(self):
        return iter(range(3))

    def __getitem__(self, key):
        self.num_read += 1
        raise OSError("closed")


class Proxy:
    @property
    def __class__(self):
        raise RuntimeError("no object here")


UNREADABLE = {
    "traced network": lambda: torch.jit.trace(nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2)),
    "scripted network": lambda: torch.jit.script(nn.Linear(2, 2)),
    "lazy layer": lambda: nn.LazyLinear(2),
    "files": Files,
    "proxy": Proxy,
}


@pytest.mark.parametrize("kind", UNREADABLE)
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_objects_that_refuse_to_be_read_hide_no_other_change(kind):
    owner = Owner({"unreadable": (held := UNREADABLE[kind]()), "n": 0})
    state = HeldState(owner)
    assert state.changed() == ""
    owner.held["n"] = 1
    assert state.changed() == "held.n"
    if kind == "files":
        assert held.num_read == 0


class Silent(nn.Linear):
    """A layer whose description fails, which nothing but `print` would call."""

    def extra_repr(self):
        return f"{self.missing}"


def test_a_layer_whose_description_fails_has_its_class_as_text():
    before = structure_of(nn.Sequential(Silent(2, 2), nn.ReLU()))
    assert before["0"] == "Silent()"
    assert changed_layers(before, structure_of(nn.Sequential(Silent(2, 2), nn.ReLU()))) == ""
    assert changed_layers(before, structure_of(nn.Sequential(Silent(2, 2), nn.Tanh()))) == "1 was ReLU(), now Tanh()"
