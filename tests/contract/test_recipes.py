"""Every recipe loads, says what it is, and is written back; every file's options can be read without torch."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import paragan
from paragan import config
from paragan.config import config_tree
from paragan.config.validation import validate_config
from paragan.core import registry, strict_yaml
from paragan.core.settings_tree import SourceLocation

RECIPES = registry.names("recipes")
CODE = [folder for folder in registry.categories() if folder not in ("recipes", "presets")]
FILES = [(folder, name) for folder in CODE for name in registry.names(folder)]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_opens_with_what_it_is_and_where_it_comes_from(name):
    lines = registry.find_source("recipes", name).read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert "minute" in lines[0] or "hour" in lines[0]
    assert lines[1].startswith("# Source: ")


@pytest.mark.parametrize("name", RECIPES)
def test_what_a_recipe_says_can_be_changed_can_be(name):
    """The `key.path=value` words of its comments."""
    comments = [
        line
        for line in registry.find_source("recipes", name).read_text(encoding="utf-8").splitlines()
        if line[0] == "#"
    ]
    words = re.findall(r"[a-z_]+(?:\.[a-z_]+)+=[^\s,;]+", "\n".join(comments))
    assert config.read_recipe(name, words) != config.read_recipe(name) or not words


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_written_and_read_back_equal(name, tmp_path):
    loaded = config.read_recipe(name)
    (tmp_path / "config.yaml").write_text(config.dump(loaded), encoding="utf-8")
    assert config.read_recipe(str(tmp_path / "config.yaml")) == loaded
    json.dumps(config.to_tree(loaded), allow_nan=False)


@pytest.mark.parametrize(("folder", "name"), FILES)
def test_default_options_pass_their_own_check(folder, name):
    """Options are plain values: written as YAML and read through the validator they come back equal."""
    kind = registry.options(folder, name)
    assert "name" not in {field.name for field in dataclasses.fields(kind)}, "a section's `name` is the file's"
    written = strict_yaml.to_yaml(config_tree._plain(kind()))
    tree = strict_yaml.read_document(written, SourceLocation("defaults"), [])
    assert validate_config(kind, tree) == kind()


def test_reading_everything_leaves_torch_alone():
    code = f"""
import sys
from paragan import config
from paragan.core import registry
for name in {RECIPES}:
    config.read_recipe(name)
for folder, name in {FILES}:
    registry.options(folder, name)
print("torch" in sys.modules)
"""
    environment = os.environ | {"PYTHONPATH": str(Path(paragan.__file__).parents[1])}
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=environment)
    assert ended.stdout == "False\n"


def test_vanilla_mnist_is_the_game_of_the_study():
    """The MLP pair, 5 epochs of 60,000 images, Adam 2e-4 with betas (0.5, 0.999), unconditional."""
    recipe = config.read_recipe("vanilla-mnist")
    assert (recipe.model.name, recipe.data.name, recipe.loss.name) == ("mlp", "mnist", "nonsaturating")
    assert (recipe.train.batch, recipe.train.kimg, recipe.model.options.conditional) == (64, 300.0, False)
    for player in (recipe.g, recipe.d):
        assert (player.optimizer.name, player.optimizer.lr, player.precision) == ("Adam", 2e-4, "fp32")
        assert player.optimizer.arguments == {"betas": [0.5, 0.999]}


def test_sngan_cifar10_is_the_paper_but_for_width_length_and_rate():
    """Miyato et al. 2018, section 4: hinge, Adam with betas (0, 0.9), five updates of D for one of G."""
    recipe = config.read_recipe("sngan-cifar10")
    assert (recipe.model.name, recipe.loss.name, recipe.scheme.name) == ("sngan", "hinge", "synchronous")
    assert (recipe.penalties, recipe.d.updates_per_step, recipe.g.updates_per_step) == ((), 5, 1)
    for player in (recipe.g, recipe.d):
        assert (player.optimizer.name, player.optimizer.arguments) == ("Adam", {"betas": [0.0, 0.9]})
