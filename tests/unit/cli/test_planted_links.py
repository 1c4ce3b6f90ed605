"""A run folder from elsewhere is full of links to a file of the user: no verb writes to that file."""

import contextlib
import os
import shutil
import sys
from pathlib import Path

import pytest
from PIL import Image

from paragan.checkpoint.reader import read_checkpoint
from paragan.checkpoint.writer import CheckpointWriter
from paragan.cli.main import main
from paragan.core import files
from paragan.core.errors import CheckpointError
from paragan.engine.background_scores import BackgroundScores
from paragan.evaluation.scoring_process import ScoringProcess
from tests.tiny_run import SMALL, TINY, train

BEFORE = "ssh-ed25519 AAAA the user's only key\n"
WORDS = (*TINY, *SMALL, "train.kimg=0.128", "every.sample_kimg=0.016")
VERBS = {
    "report": ("report", "RUN"),
    "film": ("report", "RUN", "--film", "RUN/film.webp"),
    "sample": ("sample", "RUN"),
    "walk": ("sample", "RUN", "--walk", "2", "--frames", "2"),
    "export": ("export", "RUN"),
    "export-program": ("export", "RUN", "--format", "torch"),
    "project": ("project", "RUN", "RUN/photo.png", "--steps", "2"),
    "train": ("train", "digits", *WORDS, "--out", "RUN"),
}
FOLDERS = {
    "samples": ("sample", "walk", "train"),
    "export": ("export",),
    "projections": ("project",),
    **dict.fromkeys(("checkpoints", "best", "judge", "ranks", "tensorboard"), ("train",)),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run with a sheet of samples, and the names of all files that the verbs write into it."""
    folder = tmp_path_factory.mktemp("planted") / "run"
    train(folder)
    Image.new("L", (8, 8), 200).save(folder / "photo.png")
    original = Path(shutil.copytree(folder, folder.with_name("original")))
    for verb in ("sample", "walk", "train", "report", "export", "film", "project"):
        assert call(folder, verb) == 0
    shutil.copytree(folder / "samples", original / "samples", ignore=shutil.ignore_patterns("sample-*", "walk-*"))
    return original, sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def planted(trained, tmp_path):
    """A run in which every name that is written later, and every temporary name of the past, is a link."""
    original, names = trained
    run, outside = tmp_path / "run", tmp_path / "authorized_keys"
    shutil.copytree(original, run)
    outside.write_text(BEFORE)
    for name in names:
        path = run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for link in (path, path.with_name(f".{path.name}.tmp"), path.with_name(f".tmp-{path.name}")):
            if not link.exists() and "checkpoints" not in path.parts:
                link.symlink_to(outside)
    return run, outside


def call(run: Path, verb: str) -> int:
    return main([word.replace("RUN", str(run)) for word in VERBS[verb]])


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_writes_through_a_planted_link(planted, verb, capfd):
    run, outside = planted
    if verb == "train":
        (run / "run.lock").unlink()  # has a test below
        (run / "metrics.jsonl").unlink(missing_ok=True)
    # exports refuse a folder with files that no export has written
    assert call(run, verb) == (2 if verb.startswith("export") else 0), capfd.readouterr().err
    assert outside.read_text() == BEFORE
    assert not [path for path in outside.parent.iterdir() if path not in (run, outside)]


@pytest.mark.parametrize("name", ["run.lock", "metrics.jsonl"])
def test_training_refuses_a_lock_or_record_that_is_a_link(trained, tmp_path, name, capfd):
    run, outside = Path(shutil.copytree(trained[0], tmp_path / "run")), tmp_path / "authorized_keys"
    outside.write_text(BEFORE)
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(outside)
    assert call(run, "train") == (2 if name == "run.lock" else 0)  # a resumed record is written anew
    assert outside.read_text() == BEFORE
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(("name", "verb"), [(name, verb) for name, verbs in FOLDERS.items() for verb in verbs])
def test_a_subfolder_that_is_a_link_is_refused_in_one_line(trained, tmp_path, name, verb, capfd):
    run, outside = Path(shutil.copytree(trained[0], tmp_path / "run")), tmp_path / "outside"
    if (run / name).exists():
        (run / name).rename(outside)
    outside.mkdir(exist_ok=True)
    before = sorted(outside.rglob("*"))
    (run / name).symlink_to(outside)
    assert call(run, verb) == 2
    expected = f"{run / name} is a symbolic link, and nothing is written through links in a run folder; remove the link"
    assert capfd.readouterr().err.splitlines()[-1] == expected
    assert sorted(outside.rglob("*")) == before


def test_a_failed_write_leaves_the_former_file_and_no_other(tmp_path):
    files.write_text(tmp_path / "a", "before")
    with contextlib.suppress(ZeroDivisionError), files.atomic_write(tmp_path / "a") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "before")]


def test_temporary_files_of_a_killed_process_are_removed_and_those_of_a_live_one_are_not(tmp_path):
    (tmp_path / ".a.01234567.tmp").write_text("of a killed process")
    (tmp_path / ".a.link.tmp").symlink_to(tmp_path / "elsewhere")
    (tmp_path / ".ab.01234567.tmp").write_text("of another file")
    with files.atomic_write(tmp_path / "a") as live:
        live.write(b"first")
        files.write_text(tmp_path / "a", "second")
        assert (tmp_path / "a").read_text() == "second"
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "a": "first",
        ".ab.01234567.tmp": "of another file",
    }


def test_a_pipe_is_neither_read_nor_appended_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a plain file"):
        files.read_bytes(tmp_path / "pipe", 10)
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(CheckpointError, match="pipe is not a plain file; remove it"):
        files.open_to_append(tmp_path / "pipe")
    os.close(reader)


def test_a_link_is_neither_appended_to_nor_locked(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    for opened in (files.open_to_append, files.open_lock_file):
        with pytest.raises(CheckpointError, match="link is a symbolic link, and nothing is written through links"):
            opened(tmp_path / "link")
    assert not (tmp_path / "outside").exists()


IN_PLACE = {
    "folder": lambda path, outside: path.symlink_to(outside),
    "nothing": lambda path, outside: path.symlink_to(outside / "nothing"),
    "device": lambda path, outside: path.symlink_to("/dev/zero"),
    "itself": lambda path, outside: path.symlink_to(path),
    "pipe": lambda path, outside: os.mkfifo(path),
    "file": lambda path, outside: path.write_text("x"),
}


@pytest.mark.parametrize("kind", IN_PLACE)
@pytest.mark.parametrize("name", ["step-000000002", ".tmp-step-000000002", "step-000000001", "step-000000009"])
def test_what_stands_in_the_place_of_a_checkpoint_is_removed_and_not_followed(tmp_path, kind, name):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "manifest.json").write_text(BEFORE)
    writer = CheckpointWriter(folder=tmp_path / "checkpoints", keep=1)
    writer.folder.mkdir()
    IN_PLACE[kind](writer.folder / name, outside)
    writer.save(2, {}, {"value": 7})
    assert read_checkpoint(writer.folder / "step-000000002").values == {"value": 7}
    assert not (writer.folder / "step-000000002").is_symlink()
    assert [path.name for path in outside.iterdir()] == ["manifest.json"]
    assert (outside / "manifest.json").read_text() == BEFORE
    left = {path.name for path in writer.folder.iterdir()} - {"step-000000002"}
    is_folder = kind == "folder"  # the others are no checkpoints, which their readers do not see
    if name == "step-000000009":
        assert left == {f"damaged-{name}" if is_folder else name}
    else:
        assert left == ({name} if name == "step-000000001" else set())  # an older one is kept: ages are thinned


@pytest.mark.parametrize("kind", ["folder", "nothing", "pipe"])
def test_run_replaces_a_link_in_the_place_of_its_next_checkpoint(trained, tmp_path, kind, capfd):
    run, outside = Path(shutil.copytree(trained[0], tmp_path / "run")), tmp_path / "outside"
    outside.mkdir()
    IN_PLACE[kind](run / "checkpoints" / "step-000000008", outside)
    assert call(run, "train") == 0, capfd.readouterr().err
    assert read_checkpoint(run / "checkpoints" / "step-000000008").step == 8
    assert not list(outside.iterdir())


@pytest.mark.parametrize("kind", ["folder", "nothing", "file"])
def test_score_in_the_background_replaces_a_link_in_the_place_of_its_checkpoint(tmp_path, kind):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "manifest.json").write_text(BEFORE)
    scores = BackgroundScores(
        run=tmp_path, process=ScoringProcess((sys.executable, "-c", ""), {}, tmp_path / "background" / "log")
    )
    (tmp_path / "background").mkdir()
    IN_PLACE[kind](tmp_path / "background" / "step-000000002", outside)
    assert list(scores.resume(4)) == [] and not scores.is_busy
    assert not list((tmp_path / "background").glob("step-*"))
    assert (outside / "manifest.json").read_text() == BEFORE


@pytest.mark.parametrize(
    ("verb", "name"),
    [
        ("report", "report.html"),
        ("project", "projections/photo.png"),
        ("export", "export/generator.safetensors"),
        ("train", "environment.json"),
    ],
)
def test_a_folder_in_the_place_of_a_file_is_named_with_what_to_do(trained, tmp_path, verb, name, capfd):
    run = Path(shutil.copytree(trained[0], tmp_path / "run"))
    (run / name).unlink(missing_ok=True)
    (run / name).mkdir(parents=True)
    assert call(run, verb) == 2
    (line,) = [line for line in capfd.readouterr().err.splitlines() if not line.startswith("warning:")]
    assert str(run / name) in line and "Is a directory" in line and "--out" in line and ".tmp" not in line
    assert not list(run.rglob("*.tmp"))
