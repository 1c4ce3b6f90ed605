"""Files that exist before a mistake (`setup` in tests/mistakes.yaml), and the format of the table."""

import gzip
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
import yaml
from PIL import Image

from paragan.cli.main import main

TINY = "data.size=8 model.width=4 model.latent=8 train.batch=8 train.kimg=0.016 every.score_kimg=0 every.sample_kimg=0"
WORDS = [*TINY.split(), "evaluation.features=null", "writers=[images,jsonl,console]"]
MODULE = "from dataclasses import dataclass\nfrom torch import nn\n"


@cache
def trained() -> Path:
    """A run of two steps, made once and copied."""
    folder = Path(mkdtemp()) / "run"
    assert main(["train", "digits", *WORDS, "--out", str(folder)]) == 0
    return folder


def _run(folder: Path) -> None:
    shutil.copytree(trained(), folder / "runs" / "digits")


def _run_without_checkpoint(folder: Path) -> None:
    _run(folder)
    shutil.rmtree(folder / "runs" / "digits" / "checkpoints")


def _damaged_run(folder: Path) -> None:
    _run(folder)
    for path in (folder / "runs" / "digits" / "checkpoints").rglob("g.safetensors"):
        path.write_bytes(path.read_bytes()[:-1] + b"?")


def _run_without_config(folder: Path) -> None:
    _run(folder)
    (folder / "runs" / "digits" / "config.yaml").unlink()


def _run_with_a_cut_config(folder: Path) -> None:
    _run(folder)
    config = folder / "runs" / "digits" / "config.yaml"
    config.write_text(config.read_text().partition("name: dcgan")[0] + "name: dcga")


def _foreign_run(folder: Path) -> None:
    _run(folder)
    config = folder / "runs" / "digits" / "config.yaml"
    config.write_text(config.read_text().replace("name: dcgan", "name: theirs.nets"))


def _run_from_memory(folder: Path) -> None:
    _run(folder)
    config = folder / "runs" / "digits" / "config.yaml"
    recorded = "model:\n  name: from_memory\n  generator: mine.Painter\n  discriminator: mine.Critic\n"
    config.write_text(re.sub(r"^model:\n(  .*\n)+", recorded, config.read_text(), flags=re.MULTILINE))


def _photos(folder: Path, count: int = 12) -> None:
    for i in range(count):
        target = folder / "photos" / ("cats", "dogs")[i % 2] / f"{i}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (9, 8, 3), dtype=np.uint8)).save(target)


def _broken_photo(folder: Path) -> None:
    _photos(folder)
    for path in (folder / "photos").rglob("*.png"):
        path.write_bytes(path.read_bytes()[:60])


def _module(text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "mine").mkdir()
        (folder / "mine" / "nets.py").write_text(text)

    return write


def _text(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


def _empty(folder: Path) -> None:
    (folder / "photos").mkdir()


def _notes_for_photos(folder: Path) -> None:
    _empty(folder)
    (folder / "photos" / "notes.txt").write_text("no image")


def _cut_mnist(folder: Path) -> None:
    (folder / "mnist").mkdir()
    for part, count in (("train", 60000), ("t10k", 10000)):
        whole = gzip.compress(bytes((0, 0, 8, 3)) + count.to_bytes(4, "big") + bytes((0, 0, 0, 28)) * 2 + bytes(5000))
        (folder / "mnist" / f"{part}-images-idx3-ubyte.gz").write_bytes(whole[:-20])
        (folder / "mnist" / f"{part}-labels-idx1-ubyte.gz").write_bytes(whole[:-20])


NETS = (
    MODULE
    + """
@dataclass(frozen=True)
class Options:
    width: int = 8

class Generator(nn.Module):
    latent = 4
    def __init__(self, options, shape, num_classes):
        super().__init__()
        self.net = nn.Linear(4, {outputs})
    def forward(self, z, y=None):
        return self.net(z).unflatten(1, ({unflat}))

class Discriminator(nn.Module):
    def __init__(self, options, shape, num_classes):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(256, 1))
    def forward(self, x, y=None):
        return self.net(x)
"""
)

_OF_16 = NETS.format(outputs=256, unflat="1, 16, 16")
SETUPS: dict[str, Callable[[Path], None]] = {
    "": lambda folder: None,
    "a finished run": _run,
    "a run without a checkpoint": _run_without_checkpoint,
    "a run whose checkpoints are damaged": _damaged_run,
    "a run without its config": _run_without_config,
    "a run with a truncated config": _run_with_a_cut_config,
    "a run that names custom code": _foreign_run,
    "a run with networks from Python": _run_from_memory,
    "a few photos": _photos,
    "a single photo": lambda folder: _photos(folder, 1),
    "truncated photos": _broken_photo,
    "an empty folder": _empty,
    "a folder of notes": _notes_for_photos,
    "truncated mnist files": _cut_mnist,
    "a pickled file": _text("model.pt", "PK\x03\x04 pickled"),
    "a recipe with a tab": _text("mine.yaml", "data: digits\n\tmodel: dcgan\n"),
    "a recipe with a duplicate key": _text("mine.yaml", "data: digits\nmodel: dcgan\nloss: hinge\nmodel: mlp\n"),
    "a recipe with text for an integer": _text("mine.yaml", "data: digits\nmodel: dcgan\nloss: hinge\nseed: no\n"),
    "a recipe without a model": _text("mine.yaml", "data: digits\nloss: hinge\n"),
    "networks in a file of the working directory": _text("mynets.py", NETS),
    "networks that cannot be imported": _module("import nothing_like_it\n"),
    "networks without a generator": _module(MODULE + "class Net(nn.Module): pass\n"),
    "networks of another size": _module(NETS.format(outputs=144, unflat="1, 12, 12")),
    "a generator without labels": _module(_OF_16.replace("forward(self, z, y=None)", "forward(self, z)")),
    "a discriminator without labels": _module(_OF_16.replace("forward(self, x, y=None)", "forward(self, x)")),
    "networks without labels": _module(_OF_16.replace(", y=None)", ")")),
    "a generator that needs labels": _module(_OF_16.replace("forward(self, z, y=None)", "forward(self, z, y)")),
}


@contextmanager
def prepared(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(folder))
    _forget()  # other tests use the same module names
    SETUPS[name](folder)
    yield
    _forget()


def _forget() -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] in ("mine", "mynets", "theirs")]:
        del sys.modules[module]


def to_yaml(rows: list[dict[str, str]]) -> str:
    """Format the table as YAML, one block per row."""
    return "\n".join(yaml.safe_dump([row], sort_keys=False, allow_unicode=True, width=10_000) for row in rows)
