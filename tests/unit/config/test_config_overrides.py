"""Words over a recipe: short forms, what another choice drops, and that the user hears of it."""

from pathlib import Path

import pytest

from paragan import config
from paragan.config import read_recipe


def loaded(recipe: str, *words: str) -> tuple[config.RunConfig, list[str]]:
    """The config, and the warnings."""
    warnings: list[str] = []
    return read_recipe(recipe, words, warn=warnings.append), warnings


@pytest.mark.parametrize("word", ["penalties=gradient_penalty", "penalties=[gradient_penalty]"])
def test_one_penalty_is_a_list_of_one(word):
    found, warnings = loaded("digits", word)
    assert found.penalties == (config.choose("penalties", "gradient_penalty"),)
    assert warnings == []


def test_one_penalty_can_be_changed_further():
    found, _ = loaded("vanilla-mnist", "penalties=r1", "penalties.0.weight=3", "penalties.1=orthogonal")
    assert found.penalties[0].options.weight == 3.0
    assert [penalty.name for penalty in found.penalties] == ["r1", "orthogonal"]


@pytest.mark.parametrize("word", ["g.optimizer=RMSprop", "g.optimizer.name=RMSprop"])
def test_another_optimiser_has_the_learning_rate_but_not_the_arguments_of_the_first(word):
    found, warnings = loaded("digits", word)
    assert (found.g.optimizer.name, found.g.optimizer.lr, found.g.optimizer.arguments) == ("RMSprop", 1e-3, {})
    assert found.d.optimizer.arguments == {"betas": [0.0, 0.99]}
    (warning,) = warnings
    assert warning == (
        "warning: g.optimizer.name=RMSprop drops the recipe's g.optimizer.arguments.betas=[0.0,0.99]; "
        "add what you want to keep"
    )


def test_the_arguments_of_the_command_line_stay_with_another_optimiser():
    words = ("g.optimizer.arguments.betas=[0.1, 0.9]", "g.optimizer=AdamW", "g.optimizer.arguments.eps=1e-6")
    found, warnings = loaded("digits", *words)
    assert found.g.optimizer.arguments == {"betas": [0.1, 0.9], "eps": 1e-6}
    assert warnings == []


def test_a_short_form_replaces_what_earlier_words_chose():
    found, warnings = loaded("digits", "scheme={name: skipping, every: 2}", "scheme=synchronous")
    assert found.scheme == config.choose("schemes", "synchronous")
    assert warnings == []


@pytest.mark.parametrize("word", ["model=dcgan", "model.name=dcgan"])
def test_the_same_name_again_changes_nothing(word):
    assert loaded("digits", word) == (read_recipe("digits"), [])


def test_other_data_says_which_settings_of_the_recipe_are_dropped():
    found, warnings = loaded("dcgan-mnist", "data=fashion_mnist")
    assert found.data.options.size == 28
    assert warnings == ["warning: data.name=fashion_mnist drops the recipe's data.size=32; add what you want to keep"]


@pytest.mark.parametrize(
    "words",
    [
        ("data=fashion_mnist", "data.size=32"),
        ("data.size=32", "data.name=fashion_mnist"),
        ("data=fashion_mnist", "data.size=28"),
        ("loss=hinge",),  # no settings were dropped
        ("augment=diffaugment", "model=dcgan"),
        ("model=outside.nets",),
    ],
)
def test_nothing_is_said_where_nothing_of_the_recipe_is_lost(words, tmp_path, monkeypatch):
    (tmp_path / "outside").mkdir()
    text = "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Options:\n    latent: int = 3\n"
    (tmp_path / "outside" / "nets.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert loaded("dcgan-mnist", *words)[1] == []


def test_nothing_is_said_where_the_new_choice_has_the_same_value(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("data: {name: mnist, size: 28}\nmodel: mlp\nloss: hinge\n")
    assert loaded(str(path), "data=fashion_mnist")[1] == []


WEIGHTS = "evaluation.features={name: inception, weights: ~/x}"


@pytest.mark.parametrize("word", ["data.path=~/x", "data={name: mnist, path: ~/x}", WEIGHTS])
def test_a_path_of_the_command_line_may_begin_with_the_home_folder(word, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    found, _ = loaded("dcgan-mnist", word)
    assert "/home/me/x" in (found.data.options.path, getattr(found.evaluation.features.options, "weights", None))


def test_a_path_of_a_recipe_may_begin_with_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    path = Path(tmp_path / "mine.yaml")
    path.write_text("data: {name: folder, path: ~/x}\nmodel: dcgan\nloss: hinge\n")
    assert read_recipe(str(path)).data.options.path == "/home/me/x"


def test_text_that_is_no_path_stays_as_it_is(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    found = read_recipe("digits", ["data=npz", "data.image_array=~/x", "g.optimizer.arguments.x=~/x"])
    assert (found.data.options.image_array, found.g.optimizer.arguments["x"]) == ("~/x", "~/x")


def test_yaml_may_name_one_file_where_a_list_or_a_map_stands(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("data: digits\nmodel: dcgan\nloss: hinge\npenalties: {name: r1, weight: 3}\nd: {optimizer: SGD}\n")
    found = read_recipe(str(path))
    assert [(penalty.name, penalty.options.weight) for penalty in found.penalties] == [("r1", 3.0)]
    assert found.d.optimizer.name == "SGD"
