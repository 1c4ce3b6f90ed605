"""Strict YAML and `key.path=value`, as nodes that know their place."""

from pathlib import Path

import pytest
import yaml

from paragan.config.overrides import is_override, write_word
from paragan.core import strict_yaml
from paragan.core.errors import ConfigError
from paragan.core.settings_tree import Node, SourceLocation


def read(text: str):
    """The plain nest and the problems of a YAML text."""
    problems = []
    return strict_yaml.read_document(text, SourceLocation("x.yaml", 1), problems).plain(), [str(p) for p in problems]


def over(text: str, *words: str):
    """The plain nest after overrides, and their problems."""
    problems = []
    tree = strict_yaml.read_document(text, SourceLocation("x.yaml", 1), problems)
    tree = tree if tree.value is not None else Node(tree.place, {})
    for word in words:
        write_word(tree, word, problems)
    return tree.plain(), [str(p) for p in problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("no", "no"), ("yes", "yes"), ("on", "on"), ("off", "off"), ("n", "n"), ("NO", "NO")],
        *[("true", True), ("False", False), ("null", None), ("~", None), ("", None), ("None", "None")],
        *[("2e-4", 2e-4), ("1e5", 1e5), ("1E+2", 100.0), (".5", 0.5), ("1.", 1.0), ("-3.25", -3.25)],
        *[("0", 0), ("-7", -7), ("+7", 7), ("0x1f", 31), ("0o17", 15)],
        *[("010", "010"), ("1_000", "1_000"), ("12:30:00", "12:30:00"), ("2026-11-20", "2026-11-20")],
        *[(".nan", ".nan"), (".inf", ".inf"), ("1e999", "1e999"), ("1" * 5000, "1" * 5000), ("٣", "٣")],
        *[("e5", "e5"), (".", "."), ("-", "-"), ("0b1", "0b1"), ("=", "=")],
    ],
)
def test_an_unquoted_scalar_means_what_it_looks_like(text, value):
    found = strict_yaml.parse_scalar(text)
    assert found == value
    assert type(found) is type(value)


def test_quoted_scalars_are_text():
    assert read("a: '3'\nb: \"true\"\nc: 3") == ({"a": "3", "b": "true", "c": 3}, [])


def test_keys_are_text():
    assert read("no: 1\n3: 2\nnull: 3")[0] == {"no": 1, "3": 2, "null": 3}


@pytest.mark.parametrize("text", ["", "# only words\n", "---\n", "\ufeff", "~"])
def test_an_empty_file_is_an_empty_map(text, tmp_path):
    path = tmp_path / "empty.yaml"
    path.write_text(text, encoding="utf-8")
    assert strict_yaml.read_file(path, []).plain() == {}


def test_every_node_knows_its_line():
    tree = strict_yaml.read_document("a: 1\nb:\n  - x\n  - c: 2\n\n    d: 3\n", SourceLocation("x.yaml", 1), [])
    second = tree.value["b"].value[1]
    assert [str(node.place) for node in (tree.value["a"], tree.value["b"], second.value["d"])] == [
        "x.yaml:1",
        "x.yaml:2",
        "x.yaml:6",
    ]


def test_all_duplicate_keys_are_reported_and_the_first_value_stays():
    found, problems = read("a: 1\nb: {c: 1, c: 2}\na: 3\n")
    assert found == {"a": 1, "b": {"c": 1}}
    assert problems == [
        "x.yaml:2: b.c: duplicate key, first at x.yaml:2; remove one of them",
        "x.yaml:3: a: duplicate key, first at x.yaml:1; remove one of them",
    ]


BOMB = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))


@pytest.mark.parametrize(
    ("text", "line", "found"),
    [
        (BOMB, 1, "anchors and aliases"),
        ("a: 1\nb: *a\n", 2, "anchors and aliases"),
        ("a:\n  <<: {b: 1}\n", 2, "merge key"),
        ("a: 1\nb: !!python/name:os.system x\n", 2, "tag"),
        ("a: !!int 3\n", 1, "tag"),
        ("a: 1\n---\nb: 2\n", 2, "second document"),
        ("? [a]\n: 1\n", 1, "list or map cannot be a key"),
        ("a: 1\nb: [1, 2\n", 3, "not valid YAML"),
        ("a: 1\n\tb: 2\n", 2, "not valid YAML"),
        ("a: '\n", 2, "not valid YAML"),
        ("a: \x00\n", 1, "characters"),
        ("a: " + "[" * 100_000, 1, "deeper than 32"),
        ("".join(f"{'  ' * i}a:\n" for i in range(40)), 33, "deeper than 32"),
    ],
)
def test_what_yaml_should_not_be_is_refused_in_one_line(text, line, found):
    with pytest.raises(ConfigError, match=found) as caught:
        read(text)
    assert str(caught.value).startswith(f"x.yaml:{line}: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path):
    big, binary, folder, listed = (tmp_path / f"{name}.yaml" for name in ("big", "binary", "folder", "listed"))
    big.write_text("#" * (1 << 20) + "\n")
    binary.write_bytes(b"a: 1\nb: \xff\n")
    folder.mkdir()
    listed.write_text("- a\n")
    said = {
        big: f"{big}: cannot be read: more than 1,048,576 bytes",
        binary: f"{binary}:2: not UTF-8 text",
        folder: f"{folder}: cannot be read: Is a directory",
        listed: f"{listed}:1: must be a map of `key: value`, not ['a']",
        tmp_path / "none.yaml": f"{tmp_path / 'none.yaml'}: does not exist",
        Path("a\0b.yaml"): "a\0b.yaml: cannot be read",
    }
    for path, start in said.items():
        with pytest.raises(ConfigError) as caught:
            strict_yaml.read_file(path, [])
        assert str(caught.value).startswith(start)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("a.b=2e-4", {"a": {"b": 2e-4}, "l": [{"w": 1}]}),
        ("a.c.d=no", {"a": {"b": 1, "c": {"d": "no"}}, "l": [{"w": 1}]}),
        ("a={c: 3}", {"a": {"c": 3}, "l": [{"w": 1}]}),
        ("a.b=[0, .9]", {"a": {"b": [0, 0.9]}, "l": [{"w": 1}]}),
        ("a.b=", {"a": {"b": None}, "l": [{"w": 1}]}),
        ("a.b='3'", {"a": {"b": "3"}, "l": [{"w": 1}]}),
        ("a.b=~/x: y #z=3", {"a": {"b": "~/x: y #z=3"}, "l": [{"w": 1}]}),
        ("l.0.w=3", {"a": {"b": 1}, "l": [{"w": 3}]}),
        ("l.0=3", {"a": {"b": 1}, "l": [3]}),
        ("l.1.name=r1", {"a": {"b": 1}, "l": [{"w": 1}, {"name": "r1"}]}),
        ("m.0.name=r1", {"a": {"b": 1}, "l": [{"w": 1}], "m": [{"name": "r1"}]}),
    ],
)
def test_an_override_writes_one_value(word, expected):
    assert over("a: {b: 1}\nl: [{w: 1}]\n", word) == (expected, [])


def test_an_override_opens_what_was_null():
    assert over("ema: null", "ema.half_life=2") == ({"ema": {"half_life": 2}}, [])


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("l.2.w=1", "command line: l.2.w: invalid index '2'; use 0 to 1 (1 appends)"),
        ("l.x=1", "command line: l.x: invalid index 'x'; use 0 to 1 (1 appends)"),
        ("a.b.c=1", "command line: a.b.c: 'c' cannot be set below the value 1, which is not a map"),
        ("a..b=1", "command line: 'a..b=1' is not an override; use key.path=value"),
        ("a", "command line: 'a' is not an override; use key.path=value"),
        ("a=[1", "command line: a: not valid YAML: "),
        ("a=[*x]", "command line: a: anchors and aliases"),
        ("a={b: 1, b: 2}", "command line: b: duplicate key"),
        ("a=\udcff", "command line: a: '\\udcff' is not UTF-8 text"),
    ],
)
def test_an_override_that_fits_nowhere_is_a_problem(word, problem):
    before, _ = over("a: {b: 1}\nl: [{w: 1}]\n")
    after, problems = over("a: {b: 1}\nl: [{w: 1}]\n", word)
    assert len(problems) == 1
    assert problems[0].startswith(problem)
    assert after == before or word == "a={b: 1, b: 2}"


@pytest.mark.parametrize("word", ["digits", "runs/a=b/config.yaml", "./x=1.yaml", "=3", "3=4", "a b=1"])
def test_a_recipe_is_not_an_override(word):
    assert not is_override(word)


AWKWARD = ["no", "1e5", "2e-4", "010", "null", "", " a", "a: b", "#", "0x1f", "\x85\n", "é", "- a", "x" * 300, "!t"]
PLAIN = {"a": [1, 2.5e-7, True, None, *AWKWARD], "b": {}, "c": [], "d": [{"e": 1e22, "no": -0.5}], "f": 10**30}


def test_what_is_written_reads_back_equal():
    text = strict_yaml.to_yaml(PLAIN)
    assert read(text) == (PLAIN, [])
    assert yaml.safe_load(text)["d"] == PLAIN["d"]  # other readers too


def test_written_yaml_has_no_aliases():
    shared = {"x": [1, 2]}
    assert read(strict_yaml.to_yaml({"a": shared, "b": shared}))[0] == {"a": shared, "b": shared}
