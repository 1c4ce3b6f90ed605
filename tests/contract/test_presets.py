"""Every preset says what it is and whence, and lies over any recipe."""

from itertools import cycle

import pytest
import yaml

from paragan import config
from paragan.core import registry
from paragan.core.errors import ConfigError

PRESETS = registry.names("presets")
RECIPES = {name: registry.find_source("recipes", name) for name in registry.names("recipes")}
FAMILIES = {yaml.safe_load(path.read_bytes())["model"]["name"]: name for name, path in RECIPES.items()}  # one of each
OPTIMISERS = ("g.optimizer", "d.optimizer", "d.updates_per_step")
SETS = (OPTIMISERS, ("grid", "scheme", "loss"))  # of optimisers, of grids
GRIDS = ("lipi-ring", "lipizzaner", "mustangs")
PARAGAN = ("g.optimizer", "d.optimizer", "g.strategy", "d.strategy", "scheme")  # everything of the system
CASES = [
    *zip(cycle(PRESETS), FAMILIES.values()),
    *((name, "digits") for name in PRESETS),
    ("mustangs", "fewstep-digits"),
]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_opens_with_what_it_is_and_where_it_comes_from(name):
    lines = registry.find_source("presets", name).read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ") and lines[1].startswith("# Source: ")


@pytest.mark.parametrize(("name", "recipe"), CASES)
def test_a_preset_changes_a_recipe_and_words_change_it_again(name, recipe):
    plain = config.read_recipe(recipe)
    if name in GRIDS and (plain.g.init is not None or plain.rollback is not None):
        with pytest.raises(ConfigError, match=r"(g\.init|the setting players|rollback) .* a grid"):
            config.read_recipe(recipe, [f"preset={name}"])
        return
    preset = config.read_recipe(recipe, [f"preset={name}"])
    changed = list(config.compare(plain, preset))
    assert changed or (recipe, name) == ("cellular-mnist", "lipizzaner")  # that recipe's grid is this one
    allowed = PARAGAN if name == "paragan" else SETS[preset.grid != plain.grid]
    assert all(key.startswith(allowed) for key in changed)
    assert preset.data == plain.data and preset.g.ema == plain.g.ema
    for words in ([f"preset={name}", "g.optimizer.lr=3e-3"], ["g.optimizer.lr=3e-3", f"preset={name}"]):
        again = config.read_recipe(recipe, words)
        assert list(config.compare(preset, again)) == ["g.optimizer.lr"]
        assert again.g.optimizer.lr == 3e-3


def test_the_pairs_are_what_they_are_called():
    asymmetric = config.read_recipe("digits", ["preset=asymmetric"])
    assert (asymmetric.g.optimizer.name, asymmetric.d.optimizer.name) == ("adabelief", "Adam")
    assert "eps" not in asymmetric.d.optimizer.arguments  # nothing of another optimiser's is left
    for name, k in (("ttur", 1), ("ttur-biggan", 2)):
        pair = config.read_recipe("sngan-cifar10", [f"preset={name}"])
        assert pair.d.optimizer.lr == 4 * pair.g.optimizer.lr and pair.d.updates_per_step == k


def test_preset_paragan_has_all_of_the_system():
    plain, asymmetric, whole = (
        config.read_recipe("digits", words) for words in ([], ["preset=asymmetric"], ["preset=paragan"])
    )
    # at equal rates AdaBelief may collapse under this scheme; delays act like more momentum
    for side, rate, beta1 in (("g", 1e-4, 0.25), ("d", 4e-4, 0.0)):
        mine, theirs = getattr(whole, side).optimizer, getattr(asymmetric, side).optimizer
        assert (mine.name, mine.lr) == (theirs.name, rate)
        assert mine.arguments == {**theirs.arguments, "betas": [beta1, 0.999]}
    assert [side.strategy.name for side in (whole.g, whole.d)] == ["local_sgd", "local_sgd"]
    assert [side.strategy.options.every for side in (whole.g, whole.d)] == [2, 2]
    assert whole.scheme.name == "asynchronous" and asymmetric.scheme == plain.scheme
    options = whole.scheme.options
    assert (options.state_dtype, options.fakes_dtype, options.predict) == ("bf16", "bf16", 1)


def test_an_unknown_preset_is_refused_with_what_there_is():
    with pytest.raises(
        ConfigError, match=r"unknown preset 'paragn'; choose one of .*paragan, ttur, .*did you mean 'paragan'"
    ):
        config.read_recipe("digits", ["preset=paragn"])
