"""Safe reader of weights: .safetensors files, by sha256; nothing is unpickled."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from paragan.core.errors import DataError
from paragan.core.files import read_bytes

_BYTES_PER_NUMBER = 8  # float64, the widest format that is read
_MAX_HEADER_BYTES = 1 << 20
_FIX = "check evaluation.features.weights, or use evaluation.features=auto"


def build_with_weights(make: Callable[[], nn.Module], path: Path, sha256: str | None = None) -> tuple[nn.Module, str]:
    """Build a network with the weights of a .safetensors file; also return its sha256.

    The file must hold all parameters and buffers of the network by name, and nothing else;
    floating-point formats are converted to the network's. The global random state does not change.
    sha256: of the expected file; None: any. Raises `DataError` for another file.
    """
    with torch.random.fork_rng(devices=[]):
        network = make()
    expected = network.state_dict()
    actual_sha256, weights = _read(path, expected, sha256)
    if problem := _difference(weights, expected):
        raise DataError(f"{path}: {problem}; {_FIX}")
    network.load_state_dict(weights)
    return network.eval(), actual_sha256


def _read(path: Path, expected: Mapping[str, Tensor], sha256: str | None) -> tuple[str, dict[str, Tensor]]:
    """Return the sha256 and the tensors of a file, unless it is much larger than the network."""
    max_bytes = sum(tensor.numel() for tensor in expected.values()) * _BYTES_PER_NUMBER + _MAX_HEADER_BYTES
    try:
        content = read_bytes(path, max_bytes)
        actual_sha256 = hashlib.sha256(content).hexdigest()
        if sha256 is not None and actual_sha256 != sha256:
            raise DataError(
                f"{path}: its sha256 is {actual_sha256}, not evaluation.features.sha256={sha256}; get the "
                "right file, or correct the setting"
            )
        return actual_sha256, load(content)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; {_FIX}") from None
    except SafetensorError as error:
        raise DataError(f"{path}: not a safetensors file ({error}); {_FIX}") from None


def _difference(weights: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str:
    """Return the first difference between the tensors of a file and of the network, or ""."""
    if missing := [name for name in expected if name not in weights]:
        return f"the file has no tensor {missing[0]!r} of this network"
    if unknown := [name for name in weights if name not in expected]:
        return f"the file has a tensor {unknown[0]!r}, which this network does not have"
    for name, tensor in expected.items():
        stored = weights[name]
        if stored.shape != tensor.shape or stored.is_floating_point() != tensor.is_floating_point():
            shape = tuple(stored.shape)
            return f"the tensor {name!r} is {shape} of {stored.dtype}, not {tuple(tensor.shape)} of {tensor.dtype}"
    return ""
