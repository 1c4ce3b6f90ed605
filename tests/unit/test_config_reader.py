"""Option dataclasses from a tree of settings, and their types in words."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest

from paragan import config
from paragan.config.config_reader import ConfigReader
from paragan.config.field_types import describe
from paragan.config.values import check_value
from paragan.core import registry
from paragan.core.option_types import Category, Choice, Count, Fraction, Positive, Range
from paragan.core.settings_tree import Node, SourceLocation
from paragan.core.strict_yaml import read_document


@dataclass(frozen=True)
class Inner:
    a: Count = 1
    b: Literal["x", "y"] | None = None


R1 = Choice("r1", dataclasses.replace(registry.options("penalties", "r1")(), weight=7.0))


@dataclass(frozen=True)
class Outer:
    inner: Inner = Inner(a=7)
    many: tuple[Inner, ...] = ()
    pair: tuple[float, Fraction] = (0.0, 1.0)
    table: dict[str, Positive] = dataclasses.field(default_factory=dict)
    maybe: Inner | None = Inner(a=5)
    anything: Any = None
    pick: Annotated[Choice, Category("penalties")] = R1


def fill(text: str):
    filler = ConfigReader(check_value)
    return filler.fill(Outer, read_document(text, SourceLocation("x"), [])), [
        str(problem) for problem in filler.problems
    ]


def test_a_section_keeps_the_defaults_of_its_place():
    found, _ = fill("{inner: {b: x}, maybe: {b: y}, many: [{}, {a: 2}]}")
    assert found == Outer(inner=Inner(7, "x"), maybe=Inner(5, "y"), many=(Inner(), Inner(a=2)))


def test_a_chosen_file_keeps_the_defaults_of_its_place_unless_it_is_another():
    interval = dataclasses.replace(R1.options, interval=3)
    assert fill("{pick: {interval: 3}}")[0].pick == Choice("r1", interval)
    assert fill("{pick: {name: r1, interval: 3}}")[0].pick == Choice("r1", interval)
    assert fill("{pick: orthogonal}")[0].pick == config.choose("penalties", "orthogonal")


def test_there_is_nothing_where_there_is_a_problem():
    assert fill("{nonsense: 1}")[0] is None


def test_ranges_hold_inside_containers():
    assert fill("{pair: [1, 0.5], table: {a: 1}, maybe: null, anything: {a: [1]}}")[1] == []
    assert fill("{pair: [1, 1.5]}")[1] == ["x: pair: must be a list of a number, a number >= 0 and <= 1, not [1, 1.5]"]
    assert fill("{pair: [1]}")[1] != []
    assert fill("{table: {a: 0}}")[1] == ["x: table: must be a map, not {'a': 0}"]
    assert fill("{many: [{a: 0}]}")[1] == ["x: many.0.a: must be an integer >= 1, not 0"]


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (int | None, "an integer or null"),
        (Annotated[int, Range(least=1, most=8)], "an integer >= 1 and <= 8"),
        (tuple[Count, ...], "a list, each an integer >= 1"),
        (tuple[float, float], "a list of 2, each a number"),
        (Literal["a"], "a"),
        (bool | Literal["a", "b"], "true or false or one of a, b"),
        (dict[str, Any], "a map"),
        (Any, "any value"),
        (Inner, "a map of a, b"),
        (Choice, "a map of name, options"),
    ],
)
def test_types_are_described_in_words(hint, words):
    assert describe(hint) == words


def test_nodes_that_were_made_by_hand_read_the_same():
    assert ConfigReader(check_value).fill(
        Inner, Node(SourceLocation("x"), {"a": Node(SourceLocation("x"), 3)})
    ) == Inner(a=3)
