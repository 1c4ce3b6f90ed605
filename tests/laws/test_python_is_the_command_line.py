"""`pg.train` from a program = `paragan train` with the same settings: every file of the checkpoints, byte for byte."""

import hashlib

import pytest

import paragan as pg
from paragan.cli.main import main

SETTINGS = {
    "data.size": 8, "model.width": 4, "train.batch": 16, "train.kimg": 0.128, "every.save_kimg": 0.064,
    "every.sample_kimg": 0.064, "evaluation.features": None, "g.optimizer.lr": 5e-4,
}  # fmt: skip


def checkpoints(folder):
    files = [path for path in sorted((folder / "checkpoints").rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("more", [{}, {"scheme": "synchronous"}, {"grid.shape": "1x2", "grid.batches": 4}], ids=str)
def test_train_from_python_writes_the_checkpoints_of_the_command_line(tmp_path, more):
    settings = {**SETTINGS, **more}
    run = pg.train("digits", settings, out=tmp_path / "python")
    words = [f"{key}={'null' if value is None else value}" for key, value in settings.items()]
    assert main(["train", "digits", *words, "--out", str(tmp_path / "shell")]) == 0
    written = checkpoints(tmp_path / "shell")
    assert any(name.endswith("g.safetensors") for name in written)
    assert checkpoints(run.folder) == written
    assert (run.folder / "config.yaml").read_text() == (tmp_path / "shell" / "config.yaml").read_text()
