"""Ready-made classifiers: as accurate as measured elsewhere, read from nothing but their own weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from paragan.core.errors import ConfigError, DataError
from paragan.datasets import cifar10, mnist
from paragan.evaluation import extractors
from paragan.evaluation.evaluator import Evaluator
from paragan.evaluation.extractors import EXTRACTORS, find_weights, load_extractor
from paragan.evaluation.judge import load_pretrained, with_accuracy
from paragan.loading.loader import normalise


@pytest.fixture(scope="module")
def pictures(data_root):
    return cifar10.source(cifar10.Options(str(data_root / "cifar10"), "lossless"), "held_out")


@pytest.mark.parametrize(("name", "accuracy"), [("cifar-resnet20", 0.9975), ("cifar-resnet56", 1.0)])
def test_pretrained_resnet_has_published_accuracy(data_root, pictures, name, accuracy):
    """400 of the images they were trained on; 99.85 % and 100 % of 2,000 (one mistake in 400 is 0.25 %)."""
    judge = load_pretrained(name, data_root / "classifiers" / EXTRACTORS[name].file)
    assert len(pictures) == 400
    assert with_accuracy(judge, pictures).accuracy >= accuracy
    assert judge.judge_rows(pictures, 3).features_BF.shape == (3, 64)


def test_pretrained_resnet_score_has_its_name(data_root, pictures):
    judge = load_pretrained("cifar-resnet20", data_root / "classifiers" / "resnet20_cifar10.npz")
    evaluator = Evaluator(judge, pictures, pictures, num_images=100)
    score = evaluator.score(lambda first, count: (torch.zeros(count, 3, 32, 32), None))
    assert score.metrics["fd[cifar-resnet20]"] > 0
    assert score.protocol["extractor_crop"] == 0


def test_load_pretrained_mnist_32_is_cropped(data_root):
    path = data_root / "classifiers" / "mnist_cnn.npz"
    x_BCHW = mnist.source(mnist.Options(str(data_root / "mnist")), "held_out").fetch(np.arange(20))["image"]
    plain, framed = (load_pretrained("mnist-cnn", path, size) for size in (28, 32))
    assert (plain.shape, framed.shape) == ((1, 28, 28), (1, 32, 32))
    noise = torch.rand(20, 1, 32, 32)
    noise[:, :, 2:-2, 2:-2] = normalise(x_BCHW)
    assert torch.equal(framed.judge(noise).features_BF, plain.judge(normalise(x_BCHW)).features_BF)


def test_find_weights_in_or_next_to_data_folder(tmp_path):
    data = str(tmp_path / "sets" / "cifar10")
    for folder in (tmp_path / "classifiers", tmp_path / "sets" / "classifiers", tmp_path / "sets" / "cifar10"):
        folder.mkdir(parents=True)
        (folder / "resnet56_cifar10.npz").touch()
        assert (
            find_weights(data, "cifar-resnet56") == folder / "resnet56_cifar10.npz"
        )  # each is nearer than the one before


@pytest.mark.parametrize(("data", "where"), [("data", r"no resnet20_cifar10\.npz next to data"), (None, "no resnet20")])
def test_find_weights_missing_names_both_fixes(tmp_path, monkeypatch, data, where):
    monkeypatch.chdir(tmp_path)
    cures = r"pass evaluation\.weights=FILE, or use evaluation\.features=auto"
    with pytest.raises(ConfigError, match=rf"required for the extractor 'cifar-resnet20' \({where}.*\); {cures}"):
        find_weights(data, "cifar-resnet20")


def arrays_of(name):
    return {
        key: np.ones(tuple(tensor.shape), np.float32) for key, tensor in EXTRACTORS[name].make().state_dict().items()
    }


@pytest.mark.parametrize("name", list(EXTRACTORS))
def test_load_extractor_has_weights_of_file(tmp_path, name):
    np.savez(tmp_path / "net.npz", **arrays_of(name))
    before = torch.get_rng_state()
    net = load_extractor(name, tmp_path / "net.npz")
    assert torch.equal(torch.get_rng_state(), before)
    assert all((tensor == 1).all() for tensor in net.state_dict().values())


@pytest.mark.parametrize(("given", "asked"), [("cifar-resnet20", "cifar-resnet56"), ("cifar-resnet56", "mnist-cnn")])
def test_load_extractor_other_network_is_refused(tmp_path, given, asked):
    path = tmp_path / "net.npz"
    np.savez(path, **arrays_of(given))
    with pytest.raises(DataError, match=r"found the arrays .*, expected the npz of the ") as caught:
        load_extractor(asked, path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 600 + len(str(path))


def test_load_extractor_archive_of_many_arrays_is_refused(tmp_path, monkeypatch):
    path, reads, get = tmp_path / "net.npz", [], np.lib.npyio.NpzFile.__getitem__
    np.savez(path, **arrays_of("mnist-cnn"), **{f"more{n}": np.ones(1) for n in range(100)})
    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", lambda npz, key: reads.append(key) or get(npz, key))
    with pytest.raises(DataError):
        load_extractor("mnist-cnn", path)
    assert len(reads) < 20


def test_cifar_resnet_has_parameters_of_the_paper():
    """He et al. 2016, table 6: 0.27 and 0.85 million parameters; the short-cut copies every second pixel."""
    sizes = [sum(p.numel() for p in EXTRACTORS[f"cifar-resnet{n}"].make().parameters()) for n in (20, 56)]
    assert sizes == [269_722, 853_018]
    block = extractors._Block(16, 32)
    torch.nn.init.zeros_(block.bn2.weight)
    for tensor in (block.bn1.weight, block.bn1.bias, block.bn2.bias):
        torch.nn.init.zeros_(tensor)
    for norm in (block.bn1, block.bn2):
        norm.running_mean.zero_()
        norm.running_var.fill_(1)
    x = torch.rand(2, 16, 8, 8)
    assert torch.equal(block(x), F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 8, 8)))
