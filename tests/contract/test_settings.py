"""Every setting has a meaning next to its field, and the reference and `config --explain` say all of them."""

import dataclasses
import json
import re

import pytest

from pages import settings as page
from paragan.cli.main import main
from paragan.config import RunConfig, read_recipe, to_tree
from paragan.config.field_types import fields_of
from paragan.config.reference import meanings, of_run
from paragan.core import registry
from paragan.core.from_memory import FROM_MEMORY, RECORDS
from paragan.core.option_types import Choice

SHELVES = ("models", "losses", "penalties", "augment", "datasets", "schemes", "parallel", "optim", "writers")
SHELVES += ("balancers",)
OPTIONS = {f"{folder}.{name}": registry.options(folder, name) for folder in SHELVES for name in registry.names(folder)}
HIDDEN = {f"{shelf}.from_memory": registry.options(shelf, FROM_MEMORY) for shelf in RECORDS}
OPTIONS |= {**HIDDEN, "run": RunConfig}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_setting_has_a_meaning_of_a_sentence(name):
    for setting in page.of_options(OPTIONS[name]):
        assert setting.meaning, f"{name}: {setting.key}: write what it means as a string below the field"
        assert setting.meaning[-1] in ".…", f"{name}: {setting.key}: {setting.meaning}"
        assert 10 < len(setting.meaning) < 320, f"{name}: {setting.key}"
        assert setting.kind and "<" not in setting.kind.replace("<=", ""), f"{name}: {setting.key}: {setting.kind}"


@pytest.mark.parametrize("kind", OPTIONS.values(), ids=OPTIONS)
def test_default_of_a_nested_setting_is_that_of_its_class(kind):
    """A section in which a few keys are written has the defaults of its class, not those of the field."""
    for field in fields_of(kind).values():
        if isinstance(field.default, Choice):
            assert field.default.options == type(field.default.options)()
        elif dataclasses.is_dataclass(field.default):
            assert field.default == field.inner()
            test_default_of_a_nested_setting_is_that_of_its_class(field.inner)


def test_a_setting_without_a_meaning_is_noticed(tmp_path, monkeypatch):
    text = (
        "from dataclasses import dataclass\n\n@dataclass(frozen=True)\nclass Options:\n"
        '    width: int = 1\n    """Channels."""\n    depth: int = 2\n'
    )
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "some_nets.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    kind = registry.options("models", "mine.some_nets")
    assert meanings(kind) == {"width": "Channels."}
    assert [setting.meaning for setting in page.of_options(kind)] == ["Channels.", ""]


@pytest.fixture(scope="module")
def reference():
    return page.page()


@pytest.mark.parametrize("name", [name for name in OPTIONS if name not in ("run", *HIDDEN)])
def test_the_reference_lists_every_setting_of_every_file(name, reference):
    file = name.partition(".")[2]
    named = reference.split(f"### {file}\n")[1:]  # a data set and a writer may have one name
    section = "".join(part.partition("\n#")[0] for part in named)
    assert section
    if name.startswith("datasets."):  # settings that all of them have stand before the first
        shared = reference.partition("\n## data\n")[2].partition("\n###")[0]
        assert not set(shared.splitlines()[5:]) & set(section.splitlines())
        section += shared
    for field in dataclasses.fields(OPTIONS[name]):
        if f"{file}.{field.name}" in page.OF_THE_RUN:
            continue
        rows = re.findall(rf"^\| `{field.name}` \| (.*?) \| ", section, re.MULTILINE)
        notes = ["", *re.findall(rf"^- `{field.name}`: (.*)$", section, re.MULTILINE)]  # what is too long for a cell
        listed = [_words(f"{row} {note}".strip()) for row in rows for note in notes]
        assert _words(meanings(OPTIONS[name])[field.name]) in listed


def _words(text):
    """A text without the signs at which a long one is cut."""
    return re.sub("[,;.]", "", text)


@pytest.mark.parametrize("recipe", registry.names("recipes"))
def test_explain_says_every_setting_of_a_recipe(recipe):
    words = ["data.path=here"] if recipe == "own" else []
    flat = {setting.key: setting.value for setting in of_run(recipe, words)}
    tree = to_tree(read_recipe(recipe, words))
    tree.pop("format")
    missing = [path for path, value in _leaves(tree) if path not in flat or flat[path] != value]
    assert missing == []
    assert len(flat) == len(list(_leaves(tree)))


def _leaves(tree, path=""):
    """Lists of maps are entered; a list of scalars, a map of any keys and whatever is empty are leaves."""
    nested = isinstance(tree, list) and any(isinstance(item, dict) for item in tree)
    entries = {str(number): item for number, item in enumerate(tree)} if nested else tree
    if not isinstance(entries, dict) or not entries or path.endswith((".arguments", ".weights")):
        yield path, tree
        return
    for key, value in entries.items():
        yield from _leaves(value, f"{path}.{key}" if path else key)


def test_explain_names_where_each_value_was_set(tmp_path, capsys):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("data: digits\nmodel: {name: dcgan,\n  width: 8}\nloss: hinge\npenalties:\n- name: r1\n")
    found = {setting.key: setting for setting in of_run(str(recipe), ["train.batch=32", "penalties.0.weight=2"])}
    assert found["model.width"].place == f"{recipe}:3"
    assert (found["train.batch"].place, found["train.batch"].default) == ("command line", 64)
    assert (found["penalties.0.name"].value, found["penalties.0.name"].place) == ("r1", f"{recipe}:6")
    assert (found["penalties.0.weight"].place, found["train.kimg"].place) == ("command line", "")
    assert (found["loss.name"].value, found["loss.name"].required) == ("hinge", True)
    capsys.readouterr()
    assert main(["config", str(recipe), "train.batch=32", "--explain"]) == 0
    out = capsys.readouterr().out
    assert "train.batch = 32\n    Real images per D update, over all ranks. (an integer >= 1 and <= 1048576;" in out
    assert main(["config", str(recipe), "--explain", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed[0] == {
        "key": "data.name",
        "meaning": "The data set.",
        "kind": "a name of datasets, or the dotted path of a module",
        "default": None,
        "required": True,
        "value": "digits",
        "place": f"{recipe}:1",
    }


def test_explain_imports_no_outside_code(tmp_path, monkeypatch):
    (tmp_path / "theirs.py").write_text("raise AssertionError")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {setting.key: setting for setting in of_run("digits", ["model={name: theirs.nets, width: 3}"])}
    assert (found["model.name"].value, found["model.width"].value) == ("theirs.nets", 3)
    assert found["model.width"].meaning == "An option of theirs.nets."
