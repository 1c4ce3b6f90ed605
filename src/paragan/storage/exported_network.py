"""Network of a `torch.export` file, whose graph is interpreted: no code of the file is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from paragan.core.errors import DataError
from paragan.storage.program_file import INVALID, read_program_file
from paragan.storage.program_graph import read_instructions

_BATCH_FIX = "dynamic_shapes=({0: torch.export.Dim('batch')},)"


class ExportedNetwork(nn.Module):
    """Network that `torch.export.save` wrote, from images to one or more tensors.

    input_shape: (C, H, W) of its images; None in place of a size that may vary. output_names: keys of
    what it returns; "0", "1", … if that is no mapping. sha256: of the file. Raises `DataError` for
    another file, an operation that is not known to be harmless, and a fixed number of images.
    """

    def __init__(self, path: Path, sha256: str | None = None) -> None:
        super().__init__()
        self.path = path
        file = read_program_file(path, sha256)
        self.sha256 = file.sha256
        self._weight_names = list(file.weights)
        for number, tensor in enumerate(file.weights.values()):
            self.register_buffer(f"tensor_{number}", tensor)
        try:
            self._read(file.graph)
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
        except INVALID as error:
            raise DataError(f"{path}: invalid program ({type(error).__name__}: {error}); export it again") from None

    def forward(self, x_BCHW: Tensor) -> dict[str, Tensor]:
        """Return all outputs by name. Raises `DataError` if an operation fails."""
        values: dict[str, Any] = dict(zip(self._weight_names, self.buffers(), strict=True))
        values[self._input] = x_BCHW
        for instruction in self._instructions:
            try:
                instruction.run(values, x_BCHW.device)
            except INVALID as error:
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                raise DataError(
                    f"{self.path}: {instruction.target} failed for images {tuple(x_BCHW.shape)} of {x_BCHW.dtype} "
                    f"({reason}); export the network with {_BATCH_FIX}, and use dtype: float32"
                ) from None
        return {name: values[value] for name, value in self._outputs.items()}

    def _read(self, module: dict[str, Any]) -> None:
        graph = module["graph"]
        self._input = _image_input(module["signature"]["input_specs"], len(self._weight_names))
        self.input_shape = _image_shape(graph["tensor_values"][self._input]["sizes"])
        specs = module["signature"]["output_specs"]
        if not all("user_output" in spec for spec in specs):
            raise DataError("the network changes its buffers; export it after `.eval()`")
        returned = [spec["user_output"]["arg"]["as_tensor"]["name"] for spec in specs]
        self._outputs = dict(zip(_output_names(module, len(returned)), returned, strict=True))
        self.output_names = tuple(self._outputs)
        fixed = (self._input, *self._weight_names)
        self._instructions = read_instructions(graph["nodes"], fixed, returned)


def _image_input(specs: list[dict[str, Any]], num_weights: int) -> str:
    """Return the name of the only input."""
    inputs = [spec["user_input"]["arg"] for spec in specs if "user_input" in spec]
    if len(inputs) != 1 or len(specs) != 1 + num_weights:
        raise DataError("the network has other inputs than one tensor of images; export one that has not")
    name: str = inputs[0]["as_tensor"]["name"]
    return name


def _image_shape(sizes: list[dict[str, Any]]) -> tuple[int, int | None, int | None]:
    if len(sizes) != 4 or "as_int" not in sizes[1]:
        raise DataError("the network does not take images (B, C, H, W); export one that does")
    if "as_int" in sizes[0]:
        raise DataError(f"the network takes {sizes[0]['as_int']} images at a time; export it with {_BATCH_FIX}")
    return sizes[1]["as_int"], sizes[2].get("as_int"), sizes[3].get("as_int")


def _output_names(module: dict[str, Any], count: int) -> list[str]:
    """Return the keys of a mapping that the network returns, or numbers."""
    _, tree = json.loads(module["module_call_graph"][0]["signature"]["out_spec"])
    keys = json.loads(tree["context"]) if tree["type"] == "builtins.dict" else []
    is_flat = all(child["type"] is None for child in tree["children_spec"])
    if is_flat and len(keys) == count:
        return [str(key) for key in keys]
    return [str(number) for number in range(count)]
