"""Programs for other frameworks made of a network, and compared with it."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn
from torch.fx.experimental import _config as fx_config

from paragan.core.errors import CheckpointError, ConfigError
from paragan.core.files import atomic_write
from paragan.export.plain_module import plain_module
from paragan.export.traceable import TensorsOnly, Traceable

MAX_DIFFERENCE = 1e-4
ENDINGS = {"safetensors": ".safetensors", "torch": ".pt2", "onnx": ".onnx", "python": ".py"}
_ONNX = ("onnx", "onnxscript", "onnxruntime")
Call = Callable[..., Tensor]


def torch_program(network: Traceable, path: Path) -> float:
    """Write a `torch.export` program (.pt2) for any batch size and, of networks on images or audio, any size.

    Returns its largest difference from the network at two sizes. Raises `CheckpointError`, and leaves no file, if
    tracing fails or outputs differ by over `MAX_DIFFERENCE`.
    """
    program = _trace(network)

    def write(file: BinaryIO) -> Call:
        torch.export.save(program, file)
        return program.module()

    return _write_checked(network, path, write)


def onnx_program(network: Traceable, path: Path) -> float:
    """Write an ONNX model as `torch_program` writes a program; onnxruntime runs the comparison."""
    check_onnx()
    import onnxruntime  # type: ignore[import-not-found,unused-ignore]

    program = _trace(network)

    def write(file: BinaryIO) -> Call:
        with _tracing(network.net):
            exported = torch.onnx.export(
                program, input_names=list(network.names), output_names=[network.output], verbose=False
            )
            assert exported is not None
            content = exported.model_proto.SerializeToString()
        file.write(content)
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

        def call(*arguments: Tensor) -> Tensor:
            fed = {name: value.numpy() for name, value in zip(network.names, arguments, strict=True)}
            return torch.from_numpy(session.run(None, fed)[0])

        return call

    return _write_checked(network, path, write)


def python_module(network: Traceable, path: Path) -> float:
    """Write the network as Python source, as `torch_program` writes a program; without its weights."""
    program = _trace(network)

    def write(file: BinaryIO) -> Call:
        source = plain_module(program, network, path.stem)
        file.write(source.encode())
        names: dict[str, Any] = {"__name__": path.stem}
        exec(compile(source, path.name, "exec"), names)  # noqa: S102 our own source, to compare it with the network
        module = names["Network"]()
        weights = network.net.network.state_dict()  # of the network inside the wrapper `TensorsOnly`
        module.load_state_dict({name: weights[name] for name, *_ in names["TENSORS"]})
        return module.eval()  # type: ignore[no-any-return]

    return _write_checked(network, path, write)


def check_onnx() -> None:
    """Raise `ConfigError` if a package of the extra is missing."""
    missing = [name for name in _ONNX if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"--format onnx needs {', '.join(missing)}; install: {sys.executable} -m pip install {' '.join(_ONNX)}"
        )


def _trace(network: Traceable) -> torch.export.ExportedProgram:
    """Trace a network, which takes seconds, once for all formats."""
    net = network.net
    if net.program is None:
        # a U-Net has maps of one pixel at its smallest size: sizes of 1 are no special case
        with _tracing(net), fx_config.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]
            inputs = network.traced_inputs()
            # strict, else `len(x)` would fix the size
            net.program = torch.export.export(net, inputs, dynamic_shapes=network.dynamic_shapes, strict=True)
    return net.program


def _write_checked(network: Traceable, path: Path, write: Callable[[BinaryIO], Call]) -> float:
    """Write a temporary file, compare at other sizes than traced, rename it into place."""
    with atomic_write(path) as file:
        call = write(file)
        worst = max(_difference(network.net, call, inputs) for inputs in network.checked_inputs())
        if not worst <= MAX_DIFFERENCE:
            raise CheckpointError(
                f"export: {path.name} was not written: its output differs by {worst:.2g} from the "
                f"network's, the limit is {MAX_DIFFERENCE:g}; export safetensors"
            )
    return worst


@torch.no_grad()
def _difference(net: nn.Module, call: Call, inputs: tuple[Tensor, ...]) -> float:
    expected = net(*inputs)
    images = call(*inputs)
    if images.shape != expected.shape:
        return math.inf
    return float((images - expected).abs().nan_to_num(math.inf).max())


@contextlib.contextmanager
def _tracing(net: TensorsOnly) -> Iterator[None]:
    """Hide the output of a tracer, and report a network that it cannot trace in one line."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
            yield
    except Exception as error:  # tracers have no common class of errors
        text = next(iter(str(error).strip().splitlines()), type(error).__name__)[:150]
        name = type(net.network).__name__
        raise CheckpointError(f"export: {name} cannot be traced ({text}); export safetensors") from error
    finally:
        logging.disable(before)


WRITERS = {"torch": torch_program, "onnx": onnx_program, "python": python_module}
