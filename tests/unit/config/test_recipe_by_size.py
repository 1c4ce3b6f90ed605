"""`own data.size=256` trains the recipe for large images, says so, and what a word names stays."""

import pytest

from paragan.cli.main import main
from paragan.config import read_recipe
from paragan.config.recipe import changes
from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.core.settings_tree import ProblemsError

CASES = {
    "128": "own-128",
    "256": "own-256",
    "300": "own-256",
    "512": "own-512",
    "1024": "own-512",
    "128x200": "own-128",
    "255": "own-128",
    "600x256": "own-256",  # the shorter side decides
    "64": "",
    "127": "",
    "96x160": "",
}


def read(*words):
    lines = []
    return read_recipe("own", ["data.path=DIR", *words], None, lines.append), lines


@pytest.mark.parametrize(("size", "recipe"), CASES.items())
def test_own_takes_the_recipe_of_the_size_and_says_so(size, recipe):
    found, lines = read(f"data.size={size}")
    expected = read_recipe(recipe or "own", ["data.path=DIR", f"data.size={size}"])
    assert found == expected
    starts = [f"own data.size={size}: using the recipe {recipe}; "] if recipe else []
    assert len(lines) == len(starts) and all(map(str.startswith, lines, starts))


def test_other_words_are_written_over_the_recipe_of_the_size():
    found, _ = read("data.size=256", "train.batch=4", "model.width=32", "penalties.0.weight=2")
    assert (found.train.batch, found.model.options.width) == (4, 32)
    assert found.penalties[0].name == "reconstruction" and found.penalties[0].options.weight == 2


@pytest.mark.parametrize("word", ["model=dcgan", "model.name=dcgan", "model={name: dcgan, width: 24}"])
def test_a_model_of_the_command_line_keeps_the_recipe(word):
    found, lines = read("data.size=256", word)
    assert found.model.name == "dcgan" and found.penalties[0].name == "r1"
    assert not any("using the recipe" in line for line in lines)


@pytest.mark.parametrize("size", ["abc", "0", "-3", "12x", "99999"])
def test_sizes_that_are_none_are_described_as_before(size):
    with pytest.raises(ConfigError) as caught:
        read(f"data.size={size}")
    assert "data.size" in str(caught.value)


def test_data_without_a_size_keeps_the_recipe():
    found, lines = read("data.name=shards", "data.size=null")
    assert found.model.name == "dcgan" and not [line for line in lines if "using" in line]


def test_the_key_is_for_packaged_recipes_alone(tmp_path):
    path = tmp_path / "mine.yaml"
    text = registry.find_source("recipes", "own").read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ProblemsError, match="by_size"):
        read_recipe(str(path), ["data.path=DIR"])


def test_every_recipe_that_is_named_is_there_and_fits_its_sizes():
    for size, name in ((128, "own-128"), (256, "own-256"), (512, "own-512")):
        assert name in registry.names("recipes")
        assert read_recipe(name).data.options.size >= size


def test_changed_settings_are_those_from_the_recipe_that_was_used():
    assert changes("own", read("data.size=512", "train.batch=4")[0]).keys() == {"data.path", "train.batch"}
    assert changes("own", read("data.size=256", "model=dcgan")[0]).keys() == {"data.path", "data.size"}
    assert changes("own", read("data.size=48")[0]).keys() == {"data.path", "data.size"}


def test_the_command_prints_the_line_once(capfd):
    assert main(["config", "own", "data.path=DIR", "data.size=256"]) == 0
    out, err = capfd.readouterr()
    assert err.count("using the recipe own-256") == 1 and "fastgan" in out
