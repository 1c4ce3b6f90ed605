"""Extractors with weights from a file: as accurate as published, and read from no other file than their own."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from paragan.core.errors import ConfigError, DataError
from paragan.datasets import cifar10, mnist
from paragan.evaluation.evaluator import Evaluator
from paragan.features import _cifar_resnet
from paragan.features._cifar_resnet import CifarResNet
from paragan.features._extractor import FeatureExtractor
from paragan.features.mnist_cnn import MnistCnn
from paragan.loading.loader import normalise
from paragan.storage import npz
from tests.prepared_extractors import blank, from_file, prepared

NETWORKS = {
    "mnist_cnn": MnistCnn,
    "cifar_resnet20": lambda: CifarResNet(3),
    "cifar_resnet56": lambda: CifarResNet(9),
}


@pytest.fixture(scope="module")
def pictures(data_root):
    return cifar10.source(cifar10.Options(str(data_root / "cifar10"), "lossless"), "held_out")


@pytest.mark.parametrize(("name", "accuracy"), [("cifar_resnet20", 0.9975), ("cifar_resnet56", 1.0)])
def test_resnet_of_a_file_has_published_accuracy(data_root, pictures, name, accuracy):
    """400 of the images they were trained on; 99.85 % and 100 % of 2,000 (one mistake in 400 is 0.25 %)."""
    extractor = prepared(name, pictures, path=str(data_root / "cifar10"))
    assert len(pictures) == 400
    assert extractor.with_accuracy(pictures).accuracy >= accuracy
    assert extractor.compute_rows(pictures, 3).features_BF.shape == (3, 64)


def test_resnet_of_a_file_scores_under_its_name(data_root, pictures):
    extractor = prepared("cifar_resnet20", pictures, path=str(data_root / "cifar10"))
    evaluator = Evaluator(extractor, pictures, pictures, num_images=100)
    score = evaluator.score(lambda first, count: (torch.zeros(count, 3, 32, 32), None))
    assert score.metrics["fd[cifar_resnet20]"] > 0
    assert score.protocol["extractor_crop"] == 0


def test_mnist_cnn_has_published_accuracy(data_root):
    held_out = mnist.source(mnist.Options(str(data_root / "mnist")), "held_out")
    extractor = from_file("mnist_cnn", data_root / "classifiers" / "mnist_cnn.npz")
    assert extractor.name == "mnist_cnn"
    assert extractor.compute_rows(held_out, 3).features_BF.shape == (3, 50)
    assert extractor.with_accuracy(held_out).accuracy == pytest.approx(0.9927, abs=1e-9)


def test_mnist_cnn_crops_images_with_a_frame(data_root):
    path = data_root / "classifiers" / "mnist_cnn.npz"
    x_BCHW = mnist.source(mnist.Options(str(data_root / "mnist")), "held_out").fetch(np.arange(20))["image"]
    plain, framed = (from_file("mnist_cnn", path, blank(1, size, size)) for size in (28, 32))
    assert (plain.input_shape, framed.input_shape) == ((1, 28, 28), (1, 32, 32))
    noise = torch.rand(20, 1, 32, 32)
    noise[:, :, 2:-2, 2:-2] = normalise(x_BCHW)
    assert torch.equal(framed.compute(noise).features_BF, plain.compute(normalise(x_BCHW)).features_BF)


def test_weights_are_found_in_or_next_to_the_data_folder(tmp_path):
    """Each place is nearer than the one before."""
    data = str(tmp_path / "sets" / "cifar10")
    for n, folder in enumerate(
        (tmp_path / "classifiers", tmp_path / "sets" / "classifiers", tmp_path / "sets/cifar10")
    ):
        folder.mkdir(parents=True)
        np.savez(folder / "resnet20_cifar10.npz", **arrays_of("cifar_resnet20", n + 1.0))
        extractor = prepared("cifar_resnet20", blank(3, 32, 32), path=data)
        assert (extractor.network.linear.bias == n + 1).all()


@pytest.mark.parametrize(("data", "where"), [("data", r"no resnet20_cifar10\.npz next to data"), (None, "no resnet20")])
def test_weights_that_are_not_found_name_both_fixes(tmp_path, monkeypatch, data, where):
    monkeypatch.chdir(tmp_path)
    cures = r"pass evaluation\.features\.weights=FILE, or use evaluation\.features=auto"
    with pytest.raises(ConfigError, match=rf"extractor 'cifar_resnet20' \({where}.*\); {cures}"):
        prepared("cifar_resnet20", blank(3, 32, 32), path=data)


def arrays_of(name, value=1.0):
    tensors = NETWORKS[name]().state_dict().items()
    return {key: np.full(tuple(tensor.shape), value, np.float32) for key, tensor in tensors}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_extractor_has_the_weights_of_its_file(tmp_path, name, ending):
    path = tmp_path / f"net.{ending}"
    arrays = arrays_of(name)
    if ending == "npz":
        np.savez(path, **{key: array.astype(np.float64) for key, array in arrays.items()})
    else:
        save_file({key: torch.from_numpy(array).half() for key, array in arrays.items()}, path)
    before = torch.get_rng_state()
    extractor = from_file(name, path)
    assert torch.equal(torch.get_rng_state(), before)
    assert extractor.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert all((tensor == 1).all() and tensor.dtype == torch.float32 for tensor in extractor.network.parameters())


def test_another_sha256_is_refused_in_one_line(tmp_path):
    path = tmp_path / "net.npz"
    np.savez(path, **arrays_of("mnist_cnn"))
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert from_file("mnist_cnn", path, sha256=sha256).sha256 == sha256
    message = refused(path, sha256="0" * 64)
    assert f"its sha256 is {sha256}, not evaluation.features.sha256={'0' * 64}" in message


@pytest.mark.parametrize(("given", "name"), [("cifar_resnet20", "cifar_resnet56"), ("cifar_resnet56", "mnist_cnn")])
def test_weights_of_another_network_are_refused(tmp_path, given, name):
    np.savez(tmp_path / "net.npz", **arrays_of(given))
    message = refused(tmp_path / "net.npz", name)
    assert "check evaluation.features.weights, or use evaluation.features=auto" in message


def test_an_archive_of_many_arrays_is_refused_before_they_are_read(tmp_path, monkeypatch):
    path, reads, read = tmp_path / "net.npz", [], npz.read_array
    np.savez(path, **{f"more{n}": np.ones(1) for n in range(100)})
    monkeypatch.setattr(npz, "read_array", lambda path, name, most: reads.append(name) or read(path, name, most))
    refused(path)
    assert len(reads) < 20


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"fc1.bias": np.ones(51, np.float32)}, r"'fc1.bias' is (51,) of torch.float32, not (50,) of torch.float32"),
        ({"fc1.bias": np.ones(50, np.int64)}, "'fc1.bias' is (50,) of torch.int64, not (50,) of torch.float32"),
        ({"fc1.bias": np.array([{}] * 50, object)}, "Python objects are not supported"),
        ({"extra": np.ones(1, np.float32)}, "the file has a tensor 'extra', which this network has not"),
        ({"fc2.bias": None}, "the file has no tensor 'fc2.bias' of this network"),
        ({"fc2.bias": np.zeros(1 << 20)}, "8,388,736 bytes unpacked"),
    ],
)
def test_a_file_with_other_tensors_is_refused(tmp_path, change, problem):
    arrays = {name: array for name, array in (arrays_of("mnist_cnn") | change).items() if array is not None}
    np.savez_compressed(tmp_path / "cnn.npz", **arrays)
    assert problem in refused(tmp_path / "cnn.npz")


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
@pytest.mark.parametrize("content", [None, b"", b"text", b"PK\x05\x06" + bytes(18), bytes(10_000_000)])
def test_another_file_is_refused(tmp_path, content, ending):
    path = tmp_path / f"cnn.{ending}"
    if content is not None:
        path.write_bytes(content)
    refused(path)


def test_a_damaged_archive_or_a_single_array_is_refused(tmp_path):
    np.savez(tmp_path / "cnn.npz", **arrays_of("mnist_cnn"))
    whole = (tmp_path / "cnn.npz").read_bytes()
    for damaged in (whole[:2000], whole[:500] + b"\xff" + whole[501:]):
        (tmp_path / "cnn.npz").write_bytes(damaged)
        refused(tmp_path / "cnn.npz")
    np.save(tmp_path / "lone.npy", np.ones(3))
    refused(tmp_path / "lone.npy")


def refused(path, name="mnist_cnn", **options):
    with pytest.raises(DataError) as caught:
        from_file(name, path, **options)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_image_of_another_size_is_resized_where_a_filter_is_chosen():
    """A network that returns its input: the same pixels as torch's antialiased filter gives."""
    plain = FeatureExtractor("flat", torch.nn.Flatten(), (1, 8, 8), None, "")
    filtered = FeatureExtractor("flat", torch.nn.Flatten(), (1, 8, 8), None, "", resize="bilinear")
    assert (plain.accepts((1, 16, 16)), filtered.accepts((1, 16, 16)), filtered.accepts((3, 8, 8))) == (
        False,
        True,
        False,
    )
    x = torch.rand(5, 1, 16, 16) * 2 - 1
    expected = F.interpolate(x, (8, 8), mode="bilinear", antialias=True).flatten(1)
    assert torch.equal(filtered.compute(x).features_BF, expected)
    assert torch.equal(filtered.compute(x[:, :, :8, :8]).features_BF, x[:, :, :8, :8].flatten(1))


@pytest.mark.parametrize("batch_size", [1, 7, 500])
def test_an_extractor_is_called_in_batches_of_its_dtype(batch_size):
    seen = []

    class Double(torch.nn.Module):
        def forward(self, x):
            seen.append((len(x), x.dtype))
            return 2 * x.flatten(1)

    extractor = FeatureExtractor("double", Double(), (1, 2, 2), None, "", dtype=torch.bfloat16, batch_size=batch_size)
    found = extractor.compute(torch.full((9, 1, 2, 2), 0.5))
    assert max(count for count, _ in seen) == min(batch_size, 9)
    assert {dtype for _, dtype in seen} == {torch.bfloat16}
    assert found.features_BF.dtype == torch.float32 and (found.features_BF == 1).all() and found.logits_BK is None


def test_cifar_resnet_has_parameters_of_the_paper():
    """He et al. 2016, table 6: 0.27 and 0.85 million parameters; the short-cut copies every second pixel."""
    sizes = [sum(p.numel() for p in NETWORKS[f"cifar_resnet{n}"]().parameters()) for n in (20, 56)]
    assert sizes == [269_722, 853_018]
    block = _cifar_resnet._Block(16, 32)
    torch.nn.init.zeros_(block.bn2.weight)
    for tensor in (block.bn1.weight, block.bn1.bias, block.bn2.bias):
        torch.nn.init.zeros_(tensor)
    for norm in (block.bn1, block.bn2):
        norm.running_mean.zero_()
        norm.running_var.fill_(1)
    x = torch.rand(2, 16, 8, 8)
    assert torch.equal(block(x), F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 8, 8)))
