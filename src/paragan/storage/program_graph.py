"""Interpreter of the graph in a `torch.export` file: a list of calls of known, harmless operations."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from paragan.core.errors import DataError
from paragan.storage.program_file import DTYPES

# Operations on tensors that touch no file, process or random state; `add` stands for `add_`, too.
_HARMLESS = """
    abs adaptive_avg_pool2d adaptive_max_pool2d add addmm alias all amax amin any arange argmax argmin as_strided
    avg_pool2d baddbmm batch_norm bitwise_and bitwise_not bitwise_or bmm broadcast_to cat chunk clamp clamp_max
    clamp_min clone constant_pad_nd contiguous conv1d conv2d conv_transpose2d convolution copy cos cumsum detach div
    dropout einsum elu embedding empty_like eq erf exp expand expand_as feature_dropout flatten flip floor
    floor_divide full full_like gather ge gelu glu group_norm gt hardsigmoid hardswish hardtanh index index_select
    instance_norm isnan layer_norm le leaky_relu lift_fresh_copy linalg_vector_norm linear log log_softmax logical_and
    logical_not logical_or lt masked_fill matmul max max_pool2d maximum mean min minimum mish mm movedim mul narrow
    native_layer_norm ne neg new_full new_ones new_zeros norm ones ones_like pad permute pixel_shuffle
    pixel_unshuffle pow prelu reciprocal relu relu6 remainder repeat repeat_interleave reshape reshape_as rms_norm
    roll round rsqrt rsub scalar_tensor scaled_dot_product_attention scatter select selu sigmoid sign silu sin slice
    softmax softplus split split_with_sizes sqrt square squeeze stack std sub sum swapaxes sym_numel sym_size
    sym_stride t tanh threshold tile to transpose tril triu true_divide type_as unbind unflatten unfold unsafe_chunk
    unsafe_split unsqueeze upsample_bicubic2d upsample_bilinear2d upsample_nearest2d var var_mean view view_as where
    zeros zeros_like _assert_scalar _assert_tensor_metadata _log_softmax _softmax _to_copy _unsafe_view
    _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact2d
"""
_OPERATIONS = frozenset(_HARMLESS.split())
_NUMERIC = "add sub mul truediv floordiv mod neg pow eq ne lt le gt ge getitem"
_OF_NUMBERS = frozenset(_NUMERIC.split())
_MEMORY_FORMATS = {1: torch.contiguous_format, 2: torch.channels_last, 4: torch.preserve_format}
_STRIDED = 7
_KEYWORD = 2
_LITERAL_KINDS = "as_int as_ints as_float as_floats as_bool as_bools as_string as_int_lists as_float_lists"
_LITERALS = frozenset(_LITERAL_KINDS.split())

Entry = dict[str, Any]  # of the JSON, {kind: value}


@dataclass(frozen=True)
class _Value:
    """Result of an earlier instruction, by name."""

    name: str


@dataclass(frozen=True)
class _Device:
    """Device of the images, in place of the one that the file names."""


@dataclass(frozen=True)
class Instruction:
    """Call of an operation.

    target: its name in the file. outputs: entries of the results. last_uses: names of values that no
    later instruction needs.
    """

    target: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    outputs: Sequence[Entry]
    last_uses: tuple[str, ...] = ()

    def run(self, values: dict[str, Any], device: torch.device) -> None:
        """Compute the results, add them to `values`, and remove what is not needed any more."""
        arguments = _resolve(self.arguments, values, device)
        result = self.function(*arguments, **_resolve(self.keywords, values, device))
        results = [result] if len(self.outputs) == 1 else result
        for entry, value in zip(self.outputs, results or (), strict=True):
            values.update(_named(entry, value))
        for name in self.last_uses:
            values.pop(name, None)


def read_instructions(nodes: Sequence[Entry], fixed: Collection[str], returned: Iterable[str]) -> list[Instruction]:
    """Return the instructions of a graph.

    fixed: names of weights and images, which no operation may change. returned: names of the results.
    Raises `DataError` for an operation that is not known.
    """
    found = [_instruction(node, fixed) for node in nodes]
    needed = {*fixed, *returned}
    for place in reversed(range(len(found))):
        mentioned = _names((found[place].arguments, found[place].keywords))
        written = set().union(*(_named(entry, None) for entry in found[place].outputs))
        found[place] = replace(found[place], last_uses=tuple((mentioned | written) - needed))
        needed |= mentioned
    return found


def _instruction(node: Entry, fixed: Collection[str]) -> Instruction:
    target = node["target"]
    positional = tuple(_argument(entry["arg"]) for entry in node["inputs"] if entry["kind"] != _KEYWORD)
    keywords = {entry["name"]: _argument(entry["arg"]) for entry in node["inputs"] if entry["kind"] == _KEYWORD}
    function, is_in_place = _function(target)
    if is_in_place and _names(positional[:1]) & set(fixed):
        raise DataError(f"{target} changes the images or a weight; export a network that does not")
    return Instruction(target, function, positional, keywords, node["outputs"])


def _function(target: str) -> tuple[Callable[..., Any], bool]:
    """Return a known operation, and whether it changes its first argument."""
    room, _, name = target.rpartition(".")
    if room == "_operator" and name in _OF_NUMBERS:
        return getattr(operator, name), False
    packet = room.removeprefix("torch.ops.aten.")
    is_in_place = packet not in _OPERATIONS
    if room != f"torch.ops.aten.{packet}" or packet.removesuffix("_") not in _OPERATIONS:
        raise DataError(
            f"the operation {target} is not supported; export the network after `.eval()`, without control flow and "
            "custom operations"
        )
    overloads = getattr(torch.ops.aten, packet)
    if name not in overloads.overloads():
        raise DataError(f"torch {torch.__version__} has no operation {target}; export the network with this version")
    return getattr(overloads, name), is_in_place


def _argument(entry: Entry) -> Any:
    ((kind, value),) = entry.items()
    if kind in _LITERALS:
        return value
    match kind:
        case "as_none":
            return None
        case "as_tensor":
            return _Value(value["name"])
        case "as_tensors":
            return [_Value(item["name"]) for item in value]
        case "as_name":  # of a symbolic number
            return _Value(value)
        case "as_sym_int" | "as_sym_float" | "as_sym_bool" | "as_optional_tensor":
            return _argument(value)
        case "as_sym_ints" | "as_sym_floats" | "as_sym_bools" | "as_optional_tensors":
            return [_argument(item) for item in value]
        case "as_scalar_type":
            return DTYPES[value]
        case "as_memory_format":
            return _MEMORY_FORMATS[value]
        case "as_layout" if value == _STRIDED:
            return torch.strided
        case "as_device":
            return _Device()
    raise DataError(f"an argument of kind {kind} is not supported; export the network without it")


def _resolve(nest: Any, values: dict[str, Any], device: torch.device) -> Any:
    """Replace names by their values."""
    match nest:
        case _Value():
            return values[nest.name]
        case _Device():
            return device
        case list() | tuple():
            return [_resolve(item, values, device) for item in nest]
        case dict():
            return {name: _resolve(item, values, device) for name, item in nest.items()}
    return nest


def _named(entry: Entry, result: Any) -> dict[str, Any]:
    """Return the results of one output by name."""
    places = _argument(entry)
    if isinstance(places, list):
        results = [None] * len(places) if result is None else result
        pairs = zip(places, results, strict=True)
        return {place.name: value for place, value in pairs if isinstance(place, _Value)}
    return {places.name: result} if isinstance(places, _Value) else {}


def _names(nest: Any) -> set[str]:
    """Return the names of all values in a nest of arguments."""
    if isinstance(nest, _Value):
        return {nest.name}
    items = nest.values() if isinstance(nest, dict) else nest if isinstance(nest, list | tuple) else ()
    return set().union(*map(_names, items))
