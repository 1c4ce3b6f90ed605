"""Packaged extractors: verified weights with their accuracies; every recipe is scored with the data alone."""

import gzip
import json
import struct
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from paragan import build
from paragan.cli.main import main
from paragan.config import read_recipe
from paragan.core import registry
from paragan.core.errors import DataError
from paragan.datasets import cifar10, mnist
from paragan.datasets.base.in_memory import InMemorySource
from paragan.evaluation import scorer
from paragan.evaluation.evaluator import Evaluator
from paragan.evaluation.options import EvaluationOptions
from paragan.evaluation.scorer import build_evaluator, resolve_features
from paragan.features import _packaged as packaged, auto, cifar10 as cifar10_features, mnist as mnist_features
from paragan.features._packaged import FOLDER
from paragan.features.base.extractor import ExtractorContext
from tests.prepared_extractors import blank, prepared

FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
MOST_BYTES = 1_000_000


@pytest.mark.parametrize("packaged_one", [mnist_features.EXTRACTOR, cifar10_features.EXTRACTOR], ids=lambda e: e.name)
def test_packaged_weights_are_small_and_preserve_random_state(packaged_one):
    before = torch.get_rng_state()
    extractor = prepared(packaged_one.name, blank(*packaged_one.shape))
    assert torch.equal(torch.get_rng_state(), before)
    assert extractor.sha256 == packaged_one.info["sha256"]
    assert {t.dtype for t in extractor.network.parameters()} == {torch.float32}
    assert packaged_one.weights.stat().st_size <= MOST_BYTES


@pytest.mark.parametrize(("spoil", "what"), [(lambda b: b[:-1] + b"\x01", "is damaged"), (None, "is missing")])
def test_packaged_other_weights_is_refused(tmp_path, monkeypatch, spoil, what):
    if spoil is not None:
        (tmp_path / "mnist.safetensors").write_bytes(spoil((FOLDER / "mnist.safetensors").read_bytes()))
    (tmp_path / "mnist.json").write_bytes((FOLDER / "mnist.json").read_bytes())
    monkeypatch.setattr(packaged, "FOLDER", tmp_path)
    cures = "install paragan again, or use evaluation.features=judge"
    with pytest.raises(DataError, match=rf"mnist\.safetensors: this file of the package {what}; {cures}"):
        prepared("mnist", blank(1, 28, 28))


def test_packaged_mnist_has_stated_accuracy(data_root):
    held_out = mnist.source(mnist.Options(str(data_root / "mnist")), "held_out")
    (stated,) = mnist_features.EXTRACTOR.info["accuracy"].values()
    assert stated >= 0.992
    assert prepared("mnist", held_out).with_accuracy(held_out).accuracy == pytest.approx(stated, abs=1e-4)


def test_packaged_cifar10_has_stated_accuracy(data_root):
    held_out = cifar10.source(cifar10.Options(str(data_root / "cifar10"), "lossless"), "held_out")
    stated = cifar10_features.EXTRACTOR.info["accuracy"]["400 held-out lossless training images"]
    assert prepared("cifar10", held_out).with_accuracy(held_out).accuracy == pytest.approx(stated, abs=0.0026)


def test_packaged_mnist_32_is_cropped():
    plain, framed = (prepared("mnist", blank(1, size, size)) for size in (28, 32))
    assert (plain.input_shape, framed.input_shape) == ((1, 28, 28), (1, 32, 32))
    x = torch.rand(3, 1, 32, 32)
    assert torch.equal(framed.compute(x).features_BF, plain.compute(x[:, :, 2:-2, 2:-2]).features_BF)


@pytest.mark.parametrize(
    ("dataset", "shape", "name"),
    [
        ("mnist", (1, 28, 28), "mnist"),
        ("mnist", (1, 32, 32), "mnist"),
        ("cifar10", (3, 32, 32), "cifar10"),
        ("fashion_mnist", (1, 28, 28), "judge"),
        ("folder", (3, 32, 32), "judge"),
        ("mypackage.mnist", (1, 28, 28), "judge"),
        ("mnist", (1, 64, 64), "judge"),
        ("mnist", (3, 28, 28), "judge"),
        ("mnist", (1, 28, 32), "judge"),
    ],
)
def test_auto_is_packaged_by_data_set_and_shape_else_judge(dataset, shape, name):
    assert auto.resolve(dataset, shape).name == name


def test_extractor_is_called_as_the_evaluation_says(monkeypatch):
    monkeypatch.setattr(scorer, "knows_other_images", lambda extractor, accuracy: False)
    monkeypatch.setattr(Evaluator, "accuracy", 1.0)
    source = InMemorySource(torch.zeros(10, 1, 28, 28, dtype=torch.uint8), torch.arange(10), tuple("abcdefghij"))
    context = ExtractorContext(name="", train=source, held_out=source, device=torch.device("meta"))
    asked = EvaluationOptions(dtype="bfloat16", batch_size=7)
    for options, expected in (
        (asked, (torch.device("meta"), torch.bfloat16, 7)),
        (EvaluationOptions(), (torch.device("meta"), torch.float32, 500)),
    ):
        chosen = replace(options, features=resolve_features(options, "mnist", (1, 28, 28)))
        extractor = build_evaluator(chosen, context)().extractor
        assert (extractor.device, extractor.dtype, extractor.batch_size) == expected


IMAGE_RECIPES = [name for name in registry.names("recipes") if read_recipe(name).evaluation.features is not None]


@pytest.mark.parametrize("recipe", IMAGE_RECIPES)
def test_resolve_features_recipes_need_no_weights_file(recipe):
    """Whatever its data: the packaged extractor of that data, or a judge; named by the recipe in no case."""
    config = read_recipe(recipe)
    assert config.evaluation.features.name == "auto"
    sizes = {field.name: getattr(config.data.options, field.name) for field in fields(config.data.options)}
    side = sizes.get("size", 32)
    shape = (1 if config.data.name in ("mnist", "fashion_mnist", "digits") else 3, side, side)
    expected = config.data.name if config.data.name in ("mnist", "cifar10") else "judge"
    assert resolve_features(config.evaluation, config.data.name, shape).name == expected


@pytest.fixture(scope="module")
def official(data_root, tmp_path_factory):
    """A folder with the four files of MNIST and nothing else: the first 1,500 and 300 of the official images."""
    folder = tmp_path_factory.mktemp("mnist")
    for name in FILES:
        whole = gzip.decompress((data_root / "mnist" / f"{name}.gz").read_bytes())
        count, axes = 1500 if name.startswith("train") else 300, whole[3]
        head = whole[:4] + struct.pack(">I", count) + whole[8 : 4 + 4 * axes]
        row = 784 if axes == 3 else 1
        (folder / f"{name}.gz").write_bytes(gzip.compress(head + whole[4 + 4 * axes :][: count * row], 1))
    return folder


MLP = "model={name: mlp, latent: 8, g_widths: [16], d_widths: [16]}"
FEW = ("train.batch=32", "grid.mixture.num_images=50", "grid.fitness.num_images=20")
SMALL = {
    "vanilla-mnist": (MLP, "train.kimg=0.128"),
    "dcgan-mnist": ("model.width=4", "train.kimg=0.128"),
    "cellular-mnist": (MLP, "train.kimg=0.128", "grid.shape=1x2", "grid.batches=2", *FEW),
}


@pytest.mark.parametrize("recipe", SMALL)
def test_mnist_recipes_score_with_official_files(recipe, official, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    quiet = ("every.sample_kimg=0", "every.score_kimg=0", "every.save_kimg=0", "evaluation.num_images=200")
    assert main(["train", recipe, f"data.path={official}", *SMALL[recipe], *quiet, "--out", "run"]) == 0
    printed = capfd.readouterr()
    assert "score     features of mnist (evaluation.features): Packaged residual network" in printed.out
    assert "warning" not in printed.out + printed.err
    score = json.loads((tmp_path / "run" / "score.json").read_text())
    assert score["fd[mnist]"] > score["real"]["fd[mnist]"] > 0
    assert 0.5 < score["real"]["coverage"] <= 1
    assert score["protocol"]["extractor_accuracy"] > 0.97
    assert score["protocol"]["real"] == {"split": "held_out", "num_images": 200}


def test_cifar10_files_are_scored_by_packaged_extractor(tmp_path, monkeypatch):
    """In the layout of the unpacked archive, with few images, of noise."""
    monkeypatch.setattr(scorer, "knows_other_images", lambda extractor, accuracy: False)
    monkeypatch.setattr(cifar10, "_FILE_ROWS", 20)
    for number, name in enumerate([*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"]):
        rows = np.random.default_rng(number).integers(0, 256, (20, 3073), np.uint8)
        rows[:, 0] %= 10
        (tmp_path / name).write_bytes(rows.tobytes())
    words = (f"data.path={tmp_path}", "model.width=4", "evaluation.num_images=50", "train.batch=8")
    said = []
    trainer = build.trainer(read_recipe("sngan-cifar10", words), tmp_path / "run", said.append, lambda: False)
    score = trainer.compute_score()
    assert "fd[cifar10]" in score.metrics
    assert score.protocol["extractor"] == "cifar10"
    assert [line for line in said if not line.startswith("warning: score: the extractor cifar10 is right on")] == []
