"""Network of a `torch.export` file. Loading it unpickles parts of the file: only files that the user trusts."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Self

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from paragan.core.errors import DataError
from paragan.core.files import open_regular_file
from paragan.core.printable import counted
from paragan.storage import zip_files

_BATCH_FIX = "dynamic_shapes=({0: torch.export.Dim('batch')},)"


class ExportedNetwork(nn.Module):
    """Network that `torch.export.save` wrote, from images to one or more tensors.

    Loading a file may run code of it. input_shape: (C, H, W) of its images; None in place of a size that may vary.
    output_names: keys of what it returns; "0", "1", … if that is no mapping. sha256: of the file, compared before it is
    loaded. Raises `DataError` for another file, and for a network with other inputs or a fixed number of images.
    """

    def __init__(self, path: Path, sha256: str | None = None) -> None:
        super().__init__()
        self.path = path
        with zip_files.raise_data_errors(str(path)), open_regular_file(path) as file:
            self.sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            if sha256 is not None and self.sha256 != sha256:
                raise DataError(
                    f"{path}: its sha256 is {self.sha256}, not {sha256}; get the right file, or correct the setting"
                )
            file.seek(0)
            program = _load(file, path)
        self.input_shape = _input_shape(program, path)
        if _changes_inputs(program):
            raise DataError(f"{path}: the network changes its buffers or the images; export it after `.eval()`")
        self.output_names = _output_names(program)
        self.program = program.module()

    def forward(self, x_BCHW: Tensor) -> dict[str, Tensor]:
        """Return all outputs by name. Raises `DataError` if an operation fails."""
        try:
            outputs = pytree.tree_leaves(self.program(x_BCHW))
        except (RuntimeError, AssertionError, ValueError, TypeError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise DataError(
                f"{self.path}: the network failed for images {tuple(x_BCHW.shape)} of {x_BCHW.dtype} ({reason}); "
                f"export it with {_BATCH_FIX}, and use dtype: float32"
            ) from None
        return dict(zip(self.output_names, outputs, strict=True))

    def train(self, mode: bool = True) -> Self:
        """Set the mode of this module alone: the graph was exported in one, and refuses to change it."""
        self.training = mode
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the weights, and also the constants that the graph makes on the device of its export."""
        super()._apply(fn, recurse)
        tensor = next(iter(self.program.state_dict().values()), None)
        if tensor is not None:
            for node in self.program.graph.nodes:
                if "device" in node.kwargs:
                    node.update_kwarg("device", tensor.device)
            self.program.recompile()
        return self


def _load(file: IO[bytes], path: Path) -> ExportedProgram:
    try:
        return torch.export.load(file)
    except MemoryError:
        raise
    except Exception as error:  # whatever the reader meets in another file
        reason = (str(error).splitlines() or [""])[0][:200]
        raise DataError(
            f"{path}: not a program of torch.export.save that torch {torch.__version__} can load "
            f"({type(error).__name__}: {reason}); export it again"
        ) from None


def _input_shape(program: ExportedProgram, path: Path) -> tuple[int, int | None, int | None]:
    """Return (C, H, W) of the only input."""
    names = program.graph_signature.user_inputs
    nodes = [node for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    value = nodes[0].meta.get("val") if len(nodes) == 1 else None
    if len(names) != 1 or not isinstance(value, Tensor):
        raise DataError(f"{path}: the network must take one tensor of images and nothing else; export such a network")
    if value.dim() != 4 or not isinstance(value.shape[1], int):
        raise DataError(f"{path}: the network does not take images (B, C, H, W); export one that does")
    batch, channels, height, width = (size if isinstance(size, int) else None for size in value.shape)
    if batch is not None:
        raise DataError(f"{path}: the network takes {counted(batch, 'image')} at a time; export it with {_BATCH_FIX}")
    assert channels is not None
    return channels, height, width


def _changes_inputs(program: ExportedProgram) -> bool:
    """Return whether an operation writes into a buffer, a weight or the images."""
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    schemas = ((node, getattr(node.target, "_schema", None)) for node in program.graph.nodes)
    written = [node.args[0] for node, schema in schemas if schema is not None and schema.is_mutable]
    return bool(program.graph_signature.buffers_to_mutate) or any(value in placeholders for value in written)


def _output_names(program: ExportedProgram) -> tuple[str, ...]:
    """Return the keys of a mapping that the network returns, or numbers."""
    spec = program.call_spec.out_spec
    assert spec is not None, "of every program that was exported"
    numbers: Any = pytree.tree_unflatten(range(spec.num_leaves), spec)
    if isinstance(numbers, dict) and all(isinstance(number, int) for number in numbers.values()):
        return tuple(map(str, numbers))
    return tuple(map(str, range(spec.num_leaves)))
