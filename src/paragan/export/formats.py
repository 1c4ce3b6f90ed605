"""Programs for other frameworks made of a generator, compared with its network."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
import logging
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor, nn

from paragan.core.errors import CheckpointError, ConfigError
from paragan.core.files import atomic_write
from paragan.core.outputs import GeneratorOutput
from paragan.export.sampler import Sampler
from paragan.export.tensor_sampler import TensorSampler
from paragan.layers.frozen import register_frozen_networks

MAX_DIFFERENCE = 1e-4
_ONNX = ("onnx", "onnxscript", "onnxruntime")
_NAMES = ["z", "labels"]
_TRACED_BATCH = 3  # batch sizes
_CHECKED_BATCHES = (1, 5)
Call = Callable[..., Tensor]


class ImagesOnly(nn.Module):
    """Generator that maps z (B, Z) and, if conditional, labels (B,) to images only."""

    def __init__(self, generator: nn.Module) -> None:
        super().__init__()
        self.generator = generator

    def forward(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        return GeneratorOutput.of(self.generator(z) if labels is None else self.generator(z, labels)).images


def torch_program(sampler: Sampler, path: Path) -> float:
    """Write a `torch.export` program (.pt2) for any batch size; return its largest difference.

    Raises `CheckpointError`, and leaves no file, if tracing fails or images differ by over 1e-4.
    """
    net = _images_only(sampler)
    program = _trace(net, _inputs(sampler, _TRACED_BATCH))

    def write(file: BinaryIO) -> Call:
        torch.export.save(program, file)
        return program.module()

    return _write_checked(sampler, net, path, write)


def onnx_program(sampler: Sampler, path: Path) -> float:
    """Write an ONNX model as `torch_program` writes a program; onnxruntime runs the comparison."""
    check_onnx()
    import onnxruntime  # type: ignore[import-not-found,unused-ignore]

    net = _images_only(sampler)
    inputs = _inputs(sampler, _TRACED_BATCH)
    program = _trace(net, inputs)
    names = _NAMES[: len(inputs)]

    def write(file: BinaryIO) -> Call:
        with _tracing(net):
            exported = torch.onnx.export(program, input_names=names, output_names=["images"], verbose=False)
            assert exported is not None
            content = exported.model_proto.SerializeToString()
        file.write(content)
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

        def call(*arguments: Tensor) -> Tensor:
            fed = {name: value.numpy() for name, value in zip(names, arguments, strict=True)}
            return torch.from_numpy(session.run(None, fed)[0])

        return call

    return _write_checked(sampler, net, path, write)


def check_onnx() -> None:
    """Raise `ConfigError` if a package of the extra is missing."""
    missing = [name for name in _ONNX if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"--format onnx needs {', '.join(missing)}; install: {sys.executable} -m pip install {' '.join(_ONNX)}"
        )


def _images_only(sampler: Sampler) -> ImagesOnly:
    if sampler.takes_condition or isinstance(sampler, TensorSampler):
        raise ConfigError(
            f"export: {type(sampler.net).__name__} takes other inputs than latents, which this format does not "
            "support; export safetensors"
        )
    net = ImagesOnly(copy.deepcopy(sampler.net).cpu()).eval()
    register_frozen_networks(net)
    return net


def _inputs(sampler: Sampler, n: int) -> tuple[Tensor, ...]:
    z_BZ = sampler.latents(n)
    y_B = sampler.labels(n)
    return (z_BZ,) if y_B is None else (z_BZ, y_B)


def _trace(net: ImagesOnly, inputs: tuple[Tensor, ...]) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch")
    shapes = {name: {0: batch} for name in _NAMES[: len(inputs)]}
    with _tracing(net):
        # else `len(x)` would fix the size
        return torch.export.export(net, inputs, dynamic_shapes=shapes, strict=True)


def _write_checked(sampler: Sampler, net: ImagesOnly, path: Path, write: Callable[[BinaryIO], Call]) -> float:
    """Write a temporary file, compare at other batch sizes than traced, rename it into place."""
    with atomic_write(path) as file:
        call = write(file)
        worst = max(_difference(net, call, _inputs(sampler, n)) for n in _CHECKED_BATCHES)
        if not worst <= MAX_DIFFERENCE:
            raise CheckpointError(
                f"export: {path.name} was not written: its images differ by {worst:.2g} from the "
                f"network's, the limit is {MAX_DIFFERENCE:g}; export safetensors"
            )
    return worst


@torch.no_grad()
def _difference(net: ImagesOnly, call: Call, inputs: tuple[Tensor, ...]) -> float:
    expected = net(*inputs)
    images = call(*inputs)
    if images.shape != expected.shape:
        return math.inf
    return float((images - expected).abs().nan_to_num(math.inf).max())


@contextlib.contextmanager
def _tracing(net: ImagesOnly) -> Iterator[None]:
    """Hide the output of a tracer, and report a network that it cannot trace in one line."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
            yield
    except Exception as error:  # tracers have no common class of errors
        text = next(iter(str(error).strip().splitlines()), type(error).__name__)[:150]
        name = type(net.generator).__name__
        raise CheckpointError(f"export: {name} cannot be traced ({text}); export safetensors") from error
    finally:
        logging.disable(before)
