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


def network():
    """Two layers, and the buffers of a norm."""
    return nn.Sequential(nn.Linear(320, 50), nn.BatchNorm1d(50), nn.Linear(50, 10))


def arrays_of(make=network, value=1):
    return {
        key: np.full(tuple(tensor.shape), value, str(tensor.dtype).removeprefix("torch."))
        for key, tensor in make().state_dict().items()
    }


def save(path, arrays):
    save_file({key: torch.from_numpy(np.asarray(array)) for key, array in arrays.items()}, path)


def test_network_has_the_weights_of_its_file(tmp_path):
    path = tmp_path / "net.safetensors"
    tensors = {key: torch.from_numpy(np.asarray(array)) for key, array in arrays_of().items()}
    save_file({key: value.half() if value.dim() else value for key, value in tensors.items()}, path)
    before = torch.get_rng_state()
    built, sha256 = build_with_weights(network, path)
    assert torch.equal(torch.get_rng_state(), before)
    assert sha256 == hashlib.sha256(path.read_bytes()).hexdigest() and not built.training
    assert all((tensor == 1).all() and tensor.dtype == torch.float32 for tensor in built.parameters())


def test_another_sha256_is_refused_in_one_line(tmp_path):
    path = tmp_path / "net.safetensors"
    save(path, arrays_of())
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert build_with_weights(network, path, sha256)[1] == sha256
    message = refused(path, sha256="0" * 64)
    assert f"its sha256 is {sha256}, not evaluation.features.sha256={'0' * 64}" in message


def test_weights_of_another_network_are_refused(tmp_path):
    save(tmp_path / "net.safetensors", arrays_of(lambda: nn.Sequential(nn.Linear(320, 50))))
    message = refused(tmp_path / "net.safetensors")
    assert "check evaluation.features.weights, or use evaluation.features=auto" in message


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"0.bias": np.ones(51, np.float32)}, r"'0.bias' is (51,) of torch.float32, not (50,) of torch.float32"),
        ({"0.bias": np.ones(50, np.int64)}, "'0.bias' is (50,) of torch.int64, not (50,) of torch.float32"),
        ({"extra": np.ones(1, np.float32)}, "the file has a tensor 'extra', which this network does not have"),
        ({"2.bias": None}, "the file has no tensor '2.bias' of this network"),
        ({"2.bias": np.zeros(1 << 21)}, "more than 1,182,664 bytes"),
    ],
)
def test_a_file_with_other_tensors_is_refused(tmp_path, change, problem):
    arrays = {name: array for name, array in (arrays_of() | change).items() if array is not None}
    save(tmp_path / "cnn.safetensors", arrays)
    assert problem in refused(tmp_path / "cnn.safetensors")


@pytest.mark.parametrize("content", [None, b"", b"text", b"PK\x05\x06" + bytes(18), bytes(10_000_000)])
def test_another_file_is_refused(tmp_path, content):
    path = tmp_path / "cnn.safetensors"
    if content is not None:
        path.write_bytes(content)
    refused(path)


def test_a_cut_file_is_refused(tmp_path):
    save(tmp_path / "cnn.safetensors", arrays_of())
    whole = (tmp_path / "cnn.safetensors").read_bytes()
    for damaged in (whole[:2000], whole[:20] + b"\xff" + whole[21:]):
        (tmp_path / "cnn.safetensors").write_bytes(damaged)
        refused(tmp_path / "cnn.safetensors")


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
