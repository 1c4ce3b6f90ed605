"""A config with a removed setting or name fails in one line that says what to do instead."""

import shlex
from pathlib import Path

import pytest

from paragan.cli.main import main
from paragan.config import dump, parse_recipe, read_recipe, removed_settings
from paragan.core.errors import CheckpointError, ConfigError

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
    if key == "grid.cells.N.optimizer":
        return "grid.cells=[{at: [0], optimizer: Adam}]"
    if key.startswith("grid.cells.N.g."):
        return f"grid.cells=[{{at: [0], d: {{{key.rpartition('.')[2]}: 1}}}}]"
    if "=" in key:
        return key
    registry, _, rest = key.partition(".")
    name, _, option = rest.partition(".")
    at = SETTING_OF.get(registry, registry)
    if registry not in SETTING_OF and registry not in ("penalties", "augment", "writers"):
        return f"{key}=1"
    return f"{at}={{name: {name}, {option}: 1}}" if option else f"{at}={name}"


@pytest.mark.parametrize("key", REMOVED)
def test_removed_setting_says_what_to_do_instead(key):
    with pytest.raises(ConfigError) as refused:
        read_recipe("digits", [setting(key)])
    assert f"was removed; {REMOVED[key]}" in str(refused.value)


@pytest.mark.parametrize("player", ["g", "d", "players.fake_score"])
def test_removed_setting_of_every_player_is_found(player, monkeypatch):
    monkeypatch.setattr(removed_settings, "_removed", lambda: {"g.gone": "use g.other"})
    assert removed_settings.replacement_of(f"{player}.gone") == "use g.other"
    assert removed_settings.replacement_of(f"{player}.other") is None


@pytest.mark.parametrize("key", ["patch", "Patch", "PATCH"])
def test_option_of_other_files_is_found_in_any_letter_case(key):
    assert removed_settings.replacement_of_option(f"model.{key}", "models", "dcgan", key) == "it is 2; leave it out"
    assert removed_settings.replacement_of_option("model.Width", "models", "dcgan", "Width") is None


def test_removed_settings_are_listed_once_and_in_order():
    text = Path(removed_settings.__file__).with_suffix(".yaml").read_text()
    keys = [line.partition(":")[0] for line in text.splitlines() if line and not line.startswith(("#", " "))]
    assert keys == sorted(set(keys))


# runs of older versions


def older_run(folder, **added):
    """The folder of a run whose config has further settings, by key, as a former version wrote them."""
    folder.mkdir()
    lines = dump(read_recipe("digits")).splitlines()
    for section, line in added.items():
        lines.insert(lines.index(f"{section}:") + 1, f"  {line}")
    (folder / "config.yaml").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("verb", ["train", "sample", "config", "export", "plan"])
def test_run_of_an_older_version_is_refused_in_one_line(tmp_path, verb, capsys):
    added = {"data": "cache_mb: 256", "train": "network: null", "g": "layout: null", "d": "layout: null"}
    run = older_run(tmp_path / "run", **added, evaluation="strict: false", every="x: 1")
    assert main([verb, str(run)]) == 2
    error = capsys.readouterr().err
    assert (
        error.count("\n") == 1 and "older version of paragan; settings and values in it that were removed: 5" in error
    )
    assert "data.cache_mb (line 3: leave it out, 256 MiB" in error and f"train RECIPE --out {run} --fresh" in error


def test_generator_exported_by_an_older_version_is_to_be_exported_again():
    text = dump(read_recipe("digits")).replace("\ntrain:", "\ntrain:\n  network: null")
    with pytest.raises(CheckpointError, match=r"removed: 1, namely train.network .*; export the run again"):
        parse_recipe(text, "g.safetensors (config)")


def run_with(folder, *changed):
    """The folder of a run of the recipe digits, with other texts in its config."""
    folder.mkdir()
    text = dump(read_recipe("digits"))
    for before, after in changed:
        assert before in text
        text = text.replace(before, after, 1)
    (folder / "config.yaml").write_text(text)
    return folder


@pytest.mark.slow  # trains
@pytest.mark.parametrize("fresh", [[], ["--fresh"]], ids=["resume", "fresh"])
@pytest.mark.parametrize("name", ["run", "my run"])
def test_command_to_train_anew_instead_of_an_older_run_works_as_the_line_says(tmp_path, name, fresh, capsys):
    old = older_run(tmp_path / name, data="cache_mb: 256")
    assert main(["train", str(old), *fresh]) == 2
    advised = shlex.split(capsys.readouterr().err.partition("settings are current: ")[2])
    assert advised[1:] == ["train", "RECIPE", "--out", str(old), "--fresh"]
    words = ["train.kimg=0.128", "train.executor=eager", "every.score_kimg=0", "every.sample_kimg=0"]
    assert main(["train", "digits", *words, *advised[3:]]) == 0
    assert "cache_mb" not in (old / "config.yaml").read_text()
    assert [path.name for path in tmp_path.iterdir() if path != old] == [f"{name}.old-1"]


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("layout: plain", "layout: fixed", "train.layout fixed (line {line}: use train.layout=plain)"),
        ("transport: gloo", "transport: nccl", "transport nccl (line {line}: use transport=gloo)"),
        ("name: Adam", "name: Muon", "optimizer 'Muon' (line {line}: it takes matrices only"),
        ("name: shared_fakes", "name: separate_ranks", "scheme 'separate_ranks' (line {line}: use scheme={{name: as"),
    ],
)
def test_removed_value_of_an_older_run_is_named_with_its_replacement(tmp_path, before, after, named, capsys):
    run = run_with(tmp_path / "run", (before, after))
    assert main(["config", str(run)]) == 2
    error = capsys.readouterr().err
    lines = (run / "config.yaml").read_text().splitlines()
    assert named.format(line=next(n for n, line in enumerate(lines, 1) if after in line)) in error
    assert error.count("\n") == 1 and "remove them" not in error


def test_setting_without_a_value_of_an_older_run_can_be_left_out(tmp_path, capsys):
    run = older_run(tmp_path / "run", data="threads: null", train="trace_steps: 5")
    assert main(["config", str(run)]) == 2
    error = capsys.readouterr().err
    assert "namely train.trace_steps (" in error, "what needs another value is first"
    assert "data.threads (line 3: leave it out);" in error


@pytest.mark.parametrize(
    ("word", "hints"),
    [
        ("scheme={name: separate_ranks, g_ranks: 1}", ("schemes.separate_ranks", "schemes.asynchronous.g_ranks")),
        ("evaluation.features={name: mnist_cnn, device: null}", ("features.mnist_cnn",)),
        ("evaluation.features={name: cifar_resnet20, dtype: 1}", ("features.cifar_resnet20", "features.mnist.dtype")),
        ("scheme={name: synchronous, g_ranks: 1}", ("schemes.asynchronous.g_ranks",)),
        ("penalties=[{name: gradient_penalty, final: 1}]", ("penalties.r1.final",)),
        ("evaluation.features={name: exported, path: x}", ("features.exported.path",)),
        ("g.optimizer=muon", ("optim.Muon",)),
        ("scheme=Separate_Ranks", ("schemes.separate_ranks",)),
        ("evaluation.features=MNIST_CNN", ("features.mnist_cnn",)),
    ],
)
def test_every_removed_part_of_a_choice_has_its_replacement(word, hints, capsys):
    assert main(["config", "digits", word]) == 2
    error = capsys.readouterr().err
    assert all(f"was removed; {REMOVED[hint]}" in error for hint in hints)
    assert error.count("was removed; ") == len(hints) + ("null" in word)


def test_option_that_a_file_still_has_is_not_called_removed(capsys):
    assert main(["config", "digits", "penalties=[{name: lecam, interval: 2}]"]) == 2
    capsys.readouterr()
    assert removed_settings.replacement_of_option("x", "penalties", "custom", "interval") is None  # r1 has it
    assert (
        removed_settings.replacement_of_option("x", "models", "custom", "flavour") is None  # not alike
    )


def test_removed_word_of_the_command_line_does_not_make_a_run_old(tmp_path, capsys):
    run = older_run(tmp_path / "run")
    assert main(["train", str(run), "train.network=1"]) == 2
    error = capsys.readouterr().err
    assert "this setting was removed" in error and "older version" not in error


def test_recipe_of_a_user_with_removed_settings_has_a_line_for_each(tmp_path, capsys):
    path = older_run(tmp_path / "run", data="cache_mb: 256", train="network: null") / "config.yaml"
    recipe = path.rename(tmp_path / "my.yaml")
    assert main(["config", str(recipe)]) == 2
    assert capsys.readouterr().err.count("was removed; ") == 2
