"""`--change`: other learning rates and schedules from a resume on, recorded with their step and both values."""

import shutil

import pytest

import paragan as pg
from paragan.cli.main import main
from paragan.engine.options import Change
from tests.tiny_run import newest

WORDS = (
    "data.size=8", "model.width=4", "model.latent=8", "train.batch=8", "every.sample_kimg=0", "every.save_kimg=0",
    "every.log_steps=1", "evaluation.features=null", "writers=[jsonl,console]", "g.precision=fp32", "d.precision=fp32",
    "g.optimizer.lr=2e-4",
)  # fmt: skip
FASTER = "g.optimizer.lr=1e-3"


def train(folder, *words):
    return main(["train", "digits", *WORDS, *words, "--out", str(folder)])


@pytest.fixture(scope="module")
def four_steps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("four") / "run"
    assert train(folder, "train.kimg=0.032") == 0
    return folder


@pytest.fixture
def run(four_steps, tmp_path):
    """A copy, to resume."""
    return shutil.copytree(four_steps, tmp_path / "run")


def test_another_rate_is_refused_with_both_values_and_the_way(run, capsys):
    before = (run / "config.yaml").read_text()
    capsys.readouterr()
    assert train(run, "train.kimg=0.064", FASTER) == 2
    error = capsys.readouterr().err
    assert "g.optimizer.lr was 0.0002, now 0.001" in error
    assert "add --change to change learning rates from here on" in error
    assert error.count("\n") == 1
    assert (run / "config.yaml").read_text() == before


def test_change_resumes_with_the_new_rate_and_records_it(run):
    assert train(run, "train.kimg=0.064", FASTER, "--change") == 0
    assert [line["g/lr"] for line in pg.Run(run).history] == [2e-4] * 4 + [1e-3] * 4
    texts = [line["text"] for line in pg.Run(run).records("event")]
    assert "g.optimizer.lr changed from 0.0002 to 0.001 at step 4" in texts
    config = pg.config.read_recipe(str(run / "config.yaml"))
    assert config.history == (Change(4, "g.optimizer.lr", 2e-4, 1e-3),)
    assert config.train.change_rates is False
    requested = pg.config.read_recipe("digits", [*WORDS, FASTER, "train.kimg=0.064"])
    assert list(pg.config.compare(requested, config)) == [
        "history",
        *[f"history.0.{key}" for key in ("step", "key", "before", "after")],
    ]


GROUP = 'g.optimizer.groups=[{match: "*.bias", lr: 1e-3, eps: 1e-6}]'


@pytest.mark.parametrize(("word", "rates"), [(FASTER, (1e-3, None)), (GROUP, (2e-4, 1e-3))], ids=["rate", "group"])
def test_a_run_stopped_after_a_change_resumes_bit_for_bit(run, tmp_path, word, rates, capsys):
    assert train(run, "train.kimg=0.064", word) == 2
    assert "add --change" in capsys.readouterr().err
    whole = shutil.copytree(run, tmp_path / "whole")
    assert train(whole, "train.kimg=0.096", word, "--change") == 0
    assert train(run, "train.kimg=0.064", word, "--change") == 0
    assert train(run, "train.kimg=0.096", word) == 0
    for name in ("g.safetensors", "d.safetensors", "state.json"):
        assert (newest(run) / name).read_bytes() == (newest(whole) / name).read_bytes(), name
    assert (run / "config.yaml").read_text() == (whole / "config.yaml").read_text()
    for folder in (run, whole):
        recorded = [(line["g/lr"], line.get("g/lr[*.bias]")) for line in pg.Run(folder).history]
        assert recorded == [(2e-4, None)] * 4 + [rates] * 8


def test_a_change_whose_checkpoints_are_gone_holds_from_the_resume_on(run):
    assert train(run, "train.kimg=0.064", "every.save_kimg=0.008") == 0
    assert train(run, "train.kimg=0.096", FASTER, "--change", "every.save_kimg=0") == 0
    assert [change.step for change in pg.config.read_recipe(str(run / "config.yaml")).history] == [8]
    for step in (8, 12):
        shutil.rmtree(run / "checkpoints" / f"step-{step:09d}")
    assert train(run, "train.kimg=0.096", FASTER) == 0
    assert [change.step for change in pg.config.read_recipe(str(run / "config.yaml")).history] == [7]
    assert any("holds from step 7 on" in line["text"] for line in pg.Run(run).records("event"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["seed=1", "--change"], "seed was 0, now 1"),
        (["model.width=8", FASTER, "--change"], "model.width was 4, now 8)"),
        ([FASTER, "--change", "--fresh"], "--change resumes a run and --fresh starts one"),
    ],
)
def test_what_change_does_not_allow_is_one_line(run, words, message, capsys):
    capsys.readouterr()
    assert train(run, "train.kimg=0.064", *words) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert (run / "checkpoints").exists()


def test_a_new_run_from_a_changed_config_has_no_history(run, tmp_path):
    assert train(run, "train.kimg=0.064", FASTER, "--change") == 0
    assert main(["train", str(run / "config.yaml"), "--out", str(tmp_path / "new")]) == 0
    assert pg.config.read_recipe(str(tmp_path / "new" / "config.yaml")).history == ()


def test_change_in_python_is_a_setting(run):
    settings = {"train.kimg": 0.064, "g.optimizer.lr": 1e-3}
    config = [*WORDS, *(f"{key}={value}" for key, value in settings.items())]
    with pytest.raises(pg.CheckpointError, match=r"add train\.change_rates=True"):
        pg.train(pg.config.read_recipe("digits", config), out=run)
    changed = pg.train(pg.config.read_recipe("digits", [*config, "train.change_rates=true"]), out=run)
    assert [change.key for change in changed.config.history] == ["g.optimizer.lr"]
