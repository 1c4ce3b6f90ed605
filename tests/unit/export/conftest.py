"""Fixtures of several files here."""

from functools import cache

import pytest
import typer

import paragan as pg
from paragan.cli import export as verb
from paragan.cli.main import main
from tests.unit.export.image_runs import RUNS, SIZES, noise


@pytest.fixture(scope="session")
def image_data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    for folder, width in {"pairs": 64, "photos": 32, "two/a": 32, "two/b": 32}.items():
        (root / folder).mkdir(parents=True)
        for number in range(6):
            noise(width, 32, number).save(root / folder / f"{number}.png")
    (root / "inputs" / "sub").mkdir(parents=True)
    for number, (name, size) in enumerate(SIZES.items()):
        noise(*size, number).save(root / "inputs" / f"{name}.png")
    noise(9, 9).save(root / "inputs" / "sub" / "wide.jpg")
    return root


@pytest.fixture(scope="session")
def image_runs(image_data):
    """A run of two steps of each kind of generator of images from images."""
    for name, (recipe, words, folder) in RUNS.items():
        tiny = {"data.path": str(image_data / folder), "data.size": 32, "train.batch": 2, "train.kimg": 0.004}
        pg.train(recipe, {**words, **tiny, "every.score_kimg": 0, "writers": ["jsonl"]}, out=image_data / "runs" / name)
    return image_data / "runs"


@pytest.fixture(scope="session")
def programs_folder(image_runs, tmp_path_factory):
    """The export of a run as a program and as source, made once: tracing takes seconds."""

    @cache
    def folder(name, *words):
        out = tmp_path_factory.mktemp(name)
        formats = ("--format", "torch", "--format", "python")
        assert main(["export", str(image_runs / name), *formats, *words, "--out", str(out)]) == 0
        return out

    return folder


@pytest.fixture(scope="session")
def audio_runs(tmp_path_factory):
    """Runs of two steps of a vocoder and of a codec."""
    root = tmp_path_factory.mktemp("audio")
    small = {"vocoder": {"model.width": 16}, "codec": {"model.width": 4, "model.windows": [256]}}
    for name, words in small.items():
        data = {"data.utterances": 4, "data.segment": 512, "train.batch": 2, "train.kimg": 0.004}
        pg.train(name, {**words, **data, "every.score_kimg": 0, "writers": ["jsonl"]}, out=root / name)
    return root


@pytest.fixture
def exporting(capfd):
    """Runs the verb; returns what it prints."""
    app = typer.Typer()
    app.command()(verb.export)

    def call(*words) -> list[str]:
        app([str(word) for word in words], standalone_mode=False)
        return capfd.readouterr().out.splitlines()

    return call
