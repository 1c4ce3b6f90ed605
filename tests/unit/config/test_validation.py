"""Option dataclasses from a tree of settings, and their types in words; sizes of images, a number or HEIGHTxWIDTH."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest

from paragan import config
from paragan.config import dump, parse_recipe, read_recipe
from paragan.config.validation import validate_config
from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.core.option_types import Category, Choice, Count, Fraction, Positive, height_and_width
from paragan.core.settings_tree import SourceLocation
from paragan.core.strict_yaml import read_document


@dataclass(frozen=True)
class Inner:
    a: Count = 1
    b: Literal["x", "y"] | None = None


@dataclass(frozen=True)
class Outer:
    inner: Inner = Inner()
    many: tuple[Inner, ...] = ()
    pair: tuple[float, Fraction] = (0.0, 1.0)
    table: dict[str, Positive] = dataclasses.field(default_factory=dict)
    maybe: Inner | None = None
    anything: Any = None
    numbers: tuple[Count, ...] = ()
    maps: tuple[dict[str, Any], ...] = ()
    pick: Annotated[Choice, Category("penalties")] = dataclasses.field(
        default_factory=lambda: config.choose("penalties", "r1")
    )


def fill(text: str):
    """The options and no problems, or None and the lines of all problems."""
    try:
        return validate_config(Outer, read_document(text, SourceLocation("x"), [])), []
    except ConfigError as error:
        return None, str(error).splitlines()


def test_sections_fill_what_is_not_written_with_defaults():
    found, _ = fill("{inner: {b: x}, maybe: {b: y}, many: [{}, {a: 2}]}")
    assert found == Outer(inner=Inner(1, "x"), maybe=Inner(1, "y"), many=(Inner(), Inner(a=2)))


def test_choice_without_a_name_is_the_default_one():
    options = dataclasses.replace(registry.options("penalties", "r1")(), interval=3)
    assert fill("{pick: {interval: 3}}")[0].pick == Choice("r1", options)
    assert fill("{pick: {name: r1, interval: 3}}")[0].pick == Choice("r1", options)
    assert fill("{pick: orthogonal}")[0].pick == config.choose("penalties", "orthogonal")


def test_ranges_hold_inside_containers():
    assert fill("{pair: [1, 0.5], table: {a: 1}, maybe: null, anything: {a: [1]}}")[1] == []
    assert fill("{pair: [1, 1.5]}")[1] == ["x: pair: must be a list of a number, a number >= 0 and <= 1, not [1, 1.5]"]
    assert fill("{pair: [1]}")[1] != []
    assert fill("{table: {a: 0}}")[1] == ["x: table: must be a map of names, each a number > 0, not {'a': 0}"]
    assert fill("{many: [{a: 0}]}")[1] == ["x: many.0.a: must be an integer >= 1, not 0"]


def test_all_kinds_of_problems_come_at_once():
    _, problems = fill("{inner: {a: 0, b: z, c: 1}, many: [{a: x}, 3], pair: 1, table: {b: .inf}, pick: [r1], what: 1}")
    assert [problem.partition(";")[0] for problem in problems] == [
        f"x: pick: must be {registry.describe_choices('penalties')}, not ['r1']",
        "x: inner.a: must be an integer >= 1, not 0",
        "x: inner.b: must be one of x, y or null, not 'z'",
        "x: many.0.a: must be an integer >= 1, not 'x'",
        "x: many.1: must be a map of a, b, not 3",
        "x: pair: must be a list of a number, a number >= 0 and <= 1, not 1",
        "x: table: must be a map of names, each a number > 0, not {'b': '.inf'}",
        "x: inner.c: unknown key",
        "x: what: unknown key",
    ]


def test_problem_of_an_item_names_the_item():
    text = "{many: [{}, {a: 0}], numbers: [1, x], maps: {a: 1}}"
    assert fill(text)[1] == [
        "x: many.1.a: must be an integer >= 1, not 0",
        "x: numbers.1: must be an integer >= 1, not 'x'",
    ]
    assert fill("{maps: {a: 1}}")[0].maps == ({"a": 1},)


@pytest.mark.parametrize(
    ("word", "value", "sides"),
    [
        ("224", 224, (224, 224)),
        ("28", 28, (28, 28)),
        ("96x160", "96x160", (96, 160)),
        ("40x24", "40x24", (40, 24)),
        ("64x64", 64, (64, 64)),  # a square has one spelling
        ("'48'", 48, (48, 48)),
    ],
)
def test_size_is_one_number_or_height_and_width(word, value, sides):
    size = read_recipe("own", [f"data.size={word}"]).data.options.size
    assert size == value
    assert height_and_width(size) == sides


@pytest.mark.parametrize(
    "word", ["0", "-8", "96*160", "x160", "96x", "96x160x3", "9000", "true", "1.5", "8x0", "[8,8]"]
)
def test_what_is_no_size_is_refused_with_the_form(word):
    with pytest.raises(ConfigError, match=r"data\.size: must be .*HEIGHTxWIDTH"):
        read_recipe("own", [f"data.size={word}"])


def test_size_survives_the_resolved_config():
    written = read_recipe("own", ["data.size=96x160"])
    assert parse_recipe(dump(written), "config.yaml").data == written.data


@pytest.mark.parametrize(("size", "near"), [("30", "28 or 32"), ("30x44", "28x44 or 32x44"), ("2", "4")])
def test_size_that_the_factor_of_super_resolution_does_not_divide_is_refused_with_the_two_nearest(size, near):
    with pytest.raises(ConfigError, match=f"size={size} is not a multiple of factor=4; use {near}"):
        read_recipe("superres", [f"data.size={size}"])
