"""A finished run folder and its exported file, made once and copied for every attack."""

import atexit
import contextlib
import hashlib
import io
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

from paragan.cli.main import main

SETTINGS = (
    *("data.size=8", "model.width=4", "model.latent=8", "train.batch=16", "train.kimg=0.064", "train.threads=1"),
    *("every.log_steps=1", "every.save_kimg=0.032", "every.sample_kimg=0.032", "g.precision=fp32", "d.precision=fp32"),
)


def train(folder: Path, *words: str) -> int:
    """Exit code of a run of four steps, or of its continuation."""
    with contextlib.redirect_stdout(io.StringIO()):
        return main(["train", "digits", *SETTINGS, "evaluation.features=null", *words, "--out", str(folder)])


@cache
def base() -> Path:
    """A folder with `run`, a finished run, and `exported`, its exported generator. Not to be changed."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if train(folder / "run") != 0:
        raise RuntimeError("the small run did not finish")
    with contextlib.redirect_stdout(io.StringIO()):
        if main(["export", str(folder / "run"), "--out", str(folder / "exported")]) != 0:
            raise RuntimeError("the small run was not exported")
    return folder


def copy(name: str, folder: Path) -> Path:
    """`run` or `exported` in a folder."""
    return Path(shutil.copytree(base() / name, folder / name))


def newest_checkpoint(run: Path) -> Path:
    return max((run / "checkpoints").glob("step-*"))


def sign(folder: Path) -> None:
    """Make the manifest agree with the files next to it, as an attacker would."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    for name in manifest["files"]:
        manifest["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    path.write_text(json.dumps(manifest))
