"""Weights of a file: those of the network it was made for, and no other; images that are resized; calls in batches."""

import hashlib

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from paragan.core.errors import DataError
from paragan.features.base.extractor import FeatureExtractor
from paragan.features.base.weight_files import build_with_weights
from paragan.storage import npz


def network():
    """Two layers, and the buffers of a norm."""
    return nn.Sequential(nn.Linear(320, 50), nn.BatchNorm1d(50), nn.Linear(50, 10))


def arrays_of(make=network, value=1):
    return {
        key: np.full(tuple(tensor.shape), value, str(tensor.dtype).removeprefix("torch."))
        for key, tensor in make().state_dict().items()
    }


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_network_has_the_weights_of_its_file(tmp_path, ending):
    path = tmp_path / f"net.{ending}"
    arrays = arrays_of()
    if ending == "npz":
        np.savez(path, **{key: array.astype(np.float64) if array.ndim else array for key, array in arrays.items()})
    else:
        tensors = {key: torch.from_numpy(np.asarray(array)) for key, array in arrays.items()}
        save_file({key: value.half() if value.dim() else value for key, value in tensors.items()}, path)
    before = torch.get_rng_state()
    built, sha256 = build_with_weights(network, path)
    assert torch.equal(torch.get_rng_state(), before)
    assert sha256 == hashlib.sha256(path.read_bytes()).hexdigest() and not built.training
    assert all((tensor == 1).all() and tensor.dtype == torch.float32 for tensor in built.parameters())


def test_another_sha256_is_refused_in_one_line(tmp_path):
    path = tmp_path / "net.npz"
    np.savez(path, **arrays_of())
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert build_with_weights(network, path, sha256)[1] == sha256
    message = refused(path, sha256="0" * 64)
    assert f"its sha256 is {sha256}, not evaluation.features.sha256={'0' * 64}" in message


def test_weights_of_another_network_are_refused(tmp_path):
    np.savez(tmp_path / "net.npz", **arrays_of(lambda: nn.Sequential(nn.Linear(320, 50))))
    message = refused(tmp_path / "net.npz")
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
        ({"0.bias": np.ones(51, np.float32)}, r"'0.bias' is (51,) of torch.float32, not (50,) of torch.float32"),
        ({"0.bias": np.ones(50, np.int64)}, "'0.bias' is (50,) of torch.int64, not (50,) of torch.float32"),
        ({"0.bias": np.array([{}] * 50, object)}, "Python objects are not supported"),
        ({"extra": np.ones(1, np.float32)}, "the file has a tensor 'extra', which this network has not"),
        ({"2.bias": None}, "the file has no tensor '2.bias' of this network"),
        ({"2.bias": np.zeros(1 << 20)}, "8,388,736 bytes unpacked"),
    ],
)
def test_a_file_with_other_tensors_is_refused(tmp_path, change, problem):
    arrays = {name: array for name, array in (arrays_of() | change).items() if array is not None}
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
    np.savez(tmp_path / "cnn.npz", **arrays_of())
    whole = (tmp_path / "cnn.npz").read_bytes()
    for damaged in (whole[:2000], whole[:500] + b"\xff" + whole[501:]):
        (tmp_path / "cnn.npz").write_bytes(damaged)
        refused(tmp_path / "cnn.npz")
    np.save(tmp_path / "lone.npy", np.ones(3))
    refused(tmp_path / "lone.npy")


def refused(path, sha256=None):
    with pytest.raises(DataError) as caught:
        build_with_weights(network, path, sha256)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_image_of_another_size_is_resized_where_a_filter_is_chosen():
    """A network that returns its input: the same pixels as torch's antialiased filter gives."""
    plain = FeatureExtractor(name="flat", network=torch.nn.Flatten(), shape=(1, 8, 8), num_classes=None, sha256="")
    filtered = FeatureExtractor(
        name="flat", network=torch.nn.Flatten(), shape=(1, 8, 8), num_classes=None, sha256="", resize="bilinear"
    )
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

    extractor = FeatureExtractor(
        name="double",
        network=Double(),
        shape=(1, 2, 2),
        num_classes=None,
        sha256="",
        dtype=torch.bfloat16,
        batch_size=batch_size,
    )
    found = extractor.compute(torch.full((9, 1, 2, 2), 0.5))
    assert max(count for count, _ in seen) == min(batch_size, 9)
    assert {dtype for _, dtype in seen} == {torch.bfloat16}
    assert found.features_BF.dtype == torch.float32 and (found.features_BF == 1).all() and found.logits_BK is None
