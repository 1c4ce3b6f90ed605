"""Every file of a run, of its samples and of its export has the permissions that the umask leaves."""

import os
import shlex
import stat
import subprocess
from types import SimpleNamespace

import pytest
import torch

from paragan.cli.main import main
from paragan.export import formats

TINY = "data.size=8 model.width=4 model.latent=8 train.batch=8 train.kimg=0.016 "
TINY += "every.score_kimg=0 evaluation.features=null"
COMMANDS = (
    f"train digits {TINY} --out run",
    "sample run --num 4",
    "sample run --num 4 --out sheet.jpg",
    "sample run --walk 2 --frames 2 --out walk.webp",
    "report run --film film.gif",
    "export run --out exported --format torch",
    "export run --out alone.safetensors",
)


@pytest.mark.parametrize("umask", [0o022, 0o077], ids=oct)
def test_files_follow_the_umask(tmp_path, monkeypatch, umask):
    monkeypatch.chdir(tmp_path)
    # a program takes seconds to trace; here its file is looked at alone
    monkeypatch.setattr(formats, "_trace", lambda network: SimpleNamespace(module=lambda: network.net))
    monkeypatch.setattr(torch.export, "save", lambda program, file: file.write(b"a program"))
    before = os.umask(umask)
    try:
        assert [main(shlex.split(command)) for command in COMMANDS] == [0] * len(COMMANDS)
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    odd = {str(p.relative_to(tmp_path)): oct(p.stat().st_mode) for p in files if mode(p) != 0o666 & ~umask}
    assert not odd
    names = {path.name for path in files}
    assert {"generator.safetensors", "generator.pt2", "alone.safetensors", "walk.webp", "film.gif"} <= names


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a read-only file system needs root")
@pytest.mark.parametrize(
    "words",
    [["sample", "RUN", "--num", "4"], ["report", "RUN"], ["export", "RUN", "--out", "RUN/there"]],
    ids=lambda w: w[0],
)
def test_a_read_only_run_is_named_with_what_to_do(tmp_path, words, capsys):
    run = tmp_path / "run"
    assert main(shlex.split(f"train digits {TINY} --out {run}")) == 0
    if subprocess.run(["mount", "--bind", run, run], check=False, capture_output=True).returncode:
        pytest.skip("no mount in this container")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", run], check=True)
        capsys.readouterr()
        assert main([word.replace("RUN", str(run)) for word in words]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and ".tmp" not in error
        assert "Read-only file system; choose a place that can be written, with --out" in error
    finally:
        subprocess.run(["umount", run], check=True)
