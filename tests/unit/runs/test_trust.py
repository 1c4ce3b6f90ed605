"""A config that lies in a run folder does not decide which code is imported: `--trust` does."""

import sys
from pathlib import Path

import pytest

from paragan.cli.main import main
from paragan.config import changes, read_recipe
from paragan.config.sections import ANY
from paragan.core import registry
from paragan.distributed.launch import launcher
from paragan.runs import start
from paragan.runs.run_request import RunRequest
from tests.tiny_run import SMALL, TINY

WORDS = (*TINY, *SMALL)
PLACES = {
    "model": "model: evil.nets",
    "loss": "loss: evil.nets",
    "data": "data: {name: evil.nets}",
    "writers": "writers: [jsonl, evil.nets]",
    "penalties": "penalties: [evil.nets]",
    "optimizer": "g: {optimizer: {name: evil.nets.Adam}}",
    "strategy": "d: {strategy: evil.nets}",
}


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """A package that leaves a trace when it is imported, or when its options are read."""
    folder = tmp_path / "path" / "evil"
    folder.mkdir(parents=True)
    trace = tmp_path / "trace"
    leave = f"open({str(trace)!r}, 'w').close()\n"
    (folder / "__init__.py").write_text(leave)
    options = f"from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Options:\n    {leave}"
    (folder / "nets.py").write_text(f"{options}\nfrom paragan.models.dcgan import Discriminator, Generator\n")
    monkeypatch.syspath_prepend(str(tmp_path / "path"))
    monkeypatch.chdir(tmp_path)
    yield trace
    for name in ("evil", "evil.nets"):
        sys.modules.pop(name, None)


def run_folder(place: str, mark: str = "metrics.jsonl") -> Path:
    """A run folder whose config names outside code in one place."""
    folder = Path("runs/foreign")
    folder.mkdir(parents=True)
    lines = [line for line in ("data: digits", "model: dcgan", "loss: hinge") if not line.startswith(place)]
    (folder / "config.yaml").write_text("\n".join([*lines, PLACES[place], ""]))
    (folder / mark).write_text("")
    return folder


@pytest.mark.parametrize("place", PLACES)
def test_no_verb_imports_what_the_config_of_a_run_folder_names(evil, place, capfd):
    folder = run_folder(place)
    file = str(folder / "config.yaml")
    for words in (["train", file], ["train", str(folder)], ["train", file, "--out", "x"], ["verify", file]):
        assert main(words) == 2
        assert "code outside paragan, which this file may not import" in capfd.readouterr().err
    assert main(["config", file]) == 0
    assert "evil.nets" in capfd.readouterr().out
    assert not evil.exists()


def test_trust_imports_it(evil, capfd):
    file = str(run_folder("model") / "config.yaml")
    Path("path/evil/nets.py").write_text(registry.find_source("models", "dcgan").read_text())
    assert main(["train", file, *WORDS, "--out", "runs/x", "--trust"]) == 0
    assert evil.exists()
    assert "--trust" in capfd.readouterr().out  # of the commands that it prints


def test_verify_with_trust_imports_it(evil, capfd):
    file = str(run_folder("loss") / "config.yaml")
    assert main(["verify", file, "--trust"]) == 2  # it offers no losses
    assert "does not define loss;" in capfd.readouterr().err and evil.exists()


def test_config_prints_outside_names_of_a_recipe_and_imports_nothing(evil, capfd):
    Path("mine.yaml").write_text("data: digits\nmodel: {name: evil.nets, width: 3}\nloss: hinge\n")
    assert main(["config", "mine.yaml"]) == 0
    assert "model:\n  name: evil.nets\n  width: 3\n" in capfd.readouterr().out
    assert not evil.exists()


def test_a_recipe_of_the_user_needs_no_trust(evil):
    Path("config.yaml").write_text("data: digits\nmodel: evil.nets\nloss: hinge\n")
    assert read_recipe("config.yaml").model.name == "evil.nets"
    assert evil.exists()


@pytest.mark.parametrize("mark", ["metrics.jsonl", "checkpoints", "run.lock", "environment.json", "exit.json"])
def test_every_mark_of_a_run_folder_counts(evil, mark, capfd):
    folder = run_folder("model", mark)
    Path("linked.yaml").symlink_to(folder / "config.yaml")
    (folder / "other.yaml").write_text((folder / "config.yaml").read_text())
    for file in ("linked.yaml", str(folder / "other.yaml")):
        assert main(["train", file]) == 2
    assert not evil.exists()


def test_a_config_that_a_run_has_written_counts_without_its_folder(evil, capfd):
    Path("config.yaml").write_text("format: 1\ndata: digits\nmodel: evil.nets\nloss: hinge\n")
    assert main(["train", "config.yaml"]) == 2
    assert not evil.exists()


def test_a_name_that_is_typed_needs_no_trust(evil, capfd):
    folder = run_folder("model")
    assert (
        read_recipe(str(folder / "config.yaml"), ["loss=paragan.losses.hinge", "model=dcgan"]).loss.name
        == "paragan.losses.hinge"
    )
    assert not evil.exists()


def test_what_a_word_replaces_is_not_imported_for_the_record(evil):
    file = str(run_folder("model") / "config.yaml")
    assert changes(file, read_recipe(file, ["model=dcgan"])) == {}
    assert not evil.exists()


def test_ranks_are_started_with_trust_where_their_launcher_had_it(evil, monkeypatch):
    file, jobs = str(run_folder("model") / "config.yaml"), []
    monkeypatch.setattr(launcher, "launch_ranks", lambda job, interrupt: jobs.append(job) or 0)
    config = read_recipe(file, ["devices=2"], ANY)
    assert start.start_training(RunRequest(config=config, name=file, out=Path("runs/x"), overrides=("devices=2",))) == 0
    assert jobs[0].words[-1] == "--trust"
    plain = read_recipe("digits", ["devices=2"])
    start.start_training(RunRequest(config=plain, name="digits", out=Path("runs/y"), overrides=("devices=2",)))
    assert "--trust" not in jobs[1].words
