"""The folder of a replay: no link is followed, and no other run is set aside."""

import shutil
from pathlib import Path

import pytest

from paragan.cli.main import main
from tests.extensions.replay.test_replay import trained_run


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(trained_run("shared_fakes"), tmp_path / "run"))


@pytest.mark.parametrize("holds", ["nothing", "a run", "files"])
def test_replay_follows_no_link_in_the_run_folder(folder, capsys, tmp_path, holds):
    outside = tmp_path / "outside"
    outside.mkdir()
    if holds != "nothing":
        shutil.copytree(folder, outside, dirs_exist_ok=True)
    if holds == "files":
        (outside / "config.yaml").write_text("mine")
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    (folder / "replay").symlink_to(outside)
    assert main(["replay", str(folder)]) == 2
    assert "replay is a symbolic link, and nothing is written through links" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("other", ["itself", "a run of other data", "a run of another seed"])
def test_replay_sets_no_other_run_aside(folder, capsys, tmp_path, other):
    target = folder if other == "itself" else Path(shutil.copytree(folder, tmp_path / "other"))
    config = target / "config.yaml"
    before, after = {
        "a run of other data": ("size: 8", "size: 16"),
        "a run of another seed": ("seed: 0", "seed: 1"),
    }.get(other, ("", ""))
    assert before in config.read_text()
    config.write_text(config.read_text().replace(before, after))
    assert main(["replay", str(folder), "--out", str(target)]) == 2
    assert f"{target} holds another run; give another --out DIR" in capsys.readouterr().err
    assert config.exists() and not list(target.parent.glob("*.old-*"))
