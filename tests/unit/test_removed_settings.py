"""A config with a removed setting or name fails in one line that says what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from paragan.cli import removed
from paragan.cli.main import main
from paragan.config import removed_settings

REMOVED = removed_settings._removed()
SETTING_OF = {  # registry -> the setting that names a file of it
    "datasets": "data",
    "models": "model",
    "losses": "loss",
    "schemes": "scheme",
    "parallel": "g.strategy",
    "optim": "g.optimizer",
    "adapters": "g.adapter",
    "features": "evaluation.features",
    "metrics": "evaluation.metrics",
    "balancers": "balancer",
}


def setting(key: str) -> str:
    """The word of a command line that sets a removed key."""
    if key.startswith("grid.cells.N.g."):
        return f"grid.cells=[{{at: [0], d: {{{key.rpartition('.')[2]}: 1}}}}]"
    registry, _, rest = key.partition(".")
    name, _, option = rest.partition(".")
    at = SETTING_OF.get(registry, registry)
    if registry not in SETTING_OF and registry not in ("penalties", "augment", "writers"):
        return f"{key}=1"
    return f"{at}={{name: {name}, {option}: 1}}" if option else f"{at}={name}"


@pytest.mark.parametrize("key", REMOVED)
def test_removed_setting_says_what_to_do_instead(key, capsys):
    assert main(["config", "digits", setting(key)]) == 2
    output = capsys.readouterr().err
    assert f"was removed; {REMOVED[key]}" in output
    assert "Traceback" not in output


@pytest.mark.parametrize("player", ["g", "d", "players.fake_score"])
def test_removed_setting_of_every_player_is_found(player, monkeypatch):
    monkeypatch.setattr(removed_settings, "_removed", lambda: {"g.gone": "use g.other"})
    assert removed_settings.replacement_of(f"{player}.gone") == "use g.other"
    assert removed_settings.replacement_of(f"{player}.other") is None


def test_removed_settings_are_in_alphabetical_order():
    assert list(REMOVED) == sorted(REMOVED)


def test_removed_settings_are_listed_once_and_in_order():
    text = Path(removed_settings.__file__).with_suffix(".yaml").read_text()
    keys = [line.partition(":")[0] for line in text.splitlines() if line and not line.startswith(("#", " "))]
    assert keys == sorted(set(keys))


@pytest.mark.parametrize(
    "words", [["sweep", "digits"], ["bench", "x"], ["report", "runs/x", "--serve"], ["report", "x", "--port", "1"]]
)
def test_removed_verbs_and_options_say_what_to_do_instead(words, capsys):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "was removed: use" in error and error.count("\n") == 1


@pytest.mark.parametrize(("verb", "option"), [pair for pair in removed._OPTIONS if pair[0] != "report"])
def test_removed_options_of_runs_say_what_to_do_instead(verb, option, capsys):
    assert main([verb, "digits", f"{option}=1"]) == 2
    assert f"{option} is not an option of {verb}; it was removed: " in capsys.readouterr().err
