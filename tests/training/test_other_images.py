"""A packaged extractor that was trained on other images is not used."""

import gzip
import json

import numpy as np
import pytest

import paragan as pg
from tests.conftest import ROOT

MNIST = ROOT.parent / "shared" / "data" / "mnist"
WORDS = {
    "model.width": 4, "model.latent": 8, "train.batch": 16, "train.kimg": 0.064, "every.sample_kimg": 0,
    "every.score_kimg": 1, "evaluation.num_images": 100,
}  # fmt: skip


def idx(path, values):
    header = bytes([0, 0, 8, values.ndim]) + b"".join(size.to_bytes(4, "big") for size in values.shape)
    path.write_bytes(gzip.compress(header + values.astype(np.uint8).tobytes()))


def scores(folder):
    return [x for x in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()) if x["kind"] == "score"]


@pytest.mark.usefixtures("quick_judge")
def test_other_images_under_the_names_of_mnist_are_scored_by_the_judge(tmp_path, capsys):
    """Fashion-MNIST has the files of MNIST; here textures, which no network of digits knows."""
    rng = np.random.default_rng(0)
    data = tmp_path / "data"
    data.mkdir()
    for split, count in (("train", 600), ("t10k", 200)):
        label = rng.integers(0, 10, count)
        rows = np.arange(28)[None, :, None] * (label[:, None, None] + 1)
        pixels = 120 + 100 * np.sin(rows / 9 + rng.uniform(0, 6, (count, 1, 28)))
        idx(data / f"{split}-images-idx3-ubyte.gz", pixels)
        idx(data / f"{split}-labels-idx1-ubyte.gz", label)
    pg.train("dcgan-mnist", {**WORDS, "data.path": str(data)}, out=tmp_path / "run")
    text = capsys.readouterr().out
    assert text.count("the extractor mnist is right on") == 1
    assert "it was trained on other images; scores use a classifier trained on your images" in text
    assert all("fd[judge]" in x and "fd[mnist]" not in x for x in scores(tmp_path / "run"))


@pytest.mark.skipif(not MNIST.is_dir(), reason="shared/data/mnist is not on this machine")
def test_mnist_is_scored_by_its_extractor(tmp_path, capsys):
    pg.train("dcgan-mnist", {**WORDS, "data.path": str(MNIST)}, out=tmp_path / "run")
    assert "scores use a classifier trained on your images" not in capsys.readouterr().out
    assert all("fd[mnist]" in x for x in scores(tmp_path / "run"))
