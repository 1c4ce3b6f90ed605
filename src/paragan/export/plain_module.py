"""A traced network as Python source: an `nn.Module` that needs PyTorch alone, with weights from safetensors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import jinja2
import torch
from torch import fx

from paragan import __version__
from paragan.core.errors import CheckpointError
from paragan.export.traceable import Traceable

_WRAPPER = "network."  # names in a program begin so: those of `TensorsOnly`
_NO_OUTPUT = ("aten._assert_tensor_metadata", "aten._assert_scalar", "aten.sym_constrain_range")
_Assigned = tuple[list[str], str, str]  # lines before the assignment of a result, its indentation, the expression
_LITERALS = (bool, int, float, str, type(None))


def plain_module(program: torch.export.ExportedProgram, network: Traceable, stem: str) -> str:
    """Return the source of a file whose `load(path)` returns the network with weights from `generator.safetensors`.

    stem: name of the module. Raises `CheckpointError` for a network with tensors that its state_dict lacks.
    """
    traced = program.module()
    tensors: dict[str, tuple[torch.Tensor, bool]] = {name: (tensor, True) for name, tensor in traced.named_parameters()}
    tensors |= {name: (tensor, False) for name, tensor in traced.named_buffers()}
    _check_saved(tensors, network)
    source = _Source({name: _attribute(name.removeprefix(_WRAPPER)) for name in tensors}, network.names)
    body = source.lines(traced.graph)
    rows = [
        (name.removeprefix(_WRAPPER), tuple(tensor.shape), str(tensor.dtype), is_parameter)
        for name, (tensor, is_parameter) in tensors.items()
    ]
    # inputs with sizes that must be multiples; the batch axis, a multiple of 1, has none
    sizes = {name: dict(axes) for name, axes in zip(network.names, network.axes, strict=True) if {*axes.values()} - {1}}
    return _template().render(version=__version__, network=network, rows=rows, body=body, stem=stem, sizes=sizes)


def _check_saved(names: Collection[str], network: Traceable) -> None:
    missing = sorted(set(names) - set(network.net.state_dict()))
    if missing:
        name = missing[0].removeprefix(_WRAPPER)
        raise CheckpointError(f"export: {name} is not saved with the weights; use --format torch instead")


def _template() -> jinja2.Template:
    environment = jinja2.Environment(  # of Python: every text in it is a `repr` or a checked name
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("plain_module.py.j2")


def _attribute(name: str) -> str:
    """Return how `forward` reads a tensor: `self.blocks[0].weight` of `blocks.0.weight`."""
    text = "self"
    for part in name.split("."):
        if part.isidentifier():
            text += f".{part}"
        else:
            text += f"[{part}]" if part.isdecimal() else f"[{part!r}]"
    return text


class _Source:
    """Source lines of a graph, an assignment for each of its calls.

    tensors: names of tensors to their expressions. inputs: names of the arguments of `forward`.
    """

    def __init__(self, tensors: Mapping[str, str], inputs: tuple[str, ...]) -> None:
        self.tensors = tensors
        self.device = f"{inputs[0]}.device"
        self.inputs = inputs
        self.number = 0
        self.free: list[str] = []  # names that nothing reads any more

    def lines(self, graph: fx.Graph) -> list[str]:
        """Return the body of `forward`."""
        lines, (output,) = self._block(graph, self.inputs)
        return [*lines, f"return {output}"]

    def _block(self, graph: fx.Graph, inputs: tuple[str, ...]) -> tuple[list[str], list[str]]:
        """Return lines and the expressions of the outputs. inputs: expressions of the placeholders."""
        lines: list[str] = []
        texts: dict[fx.Node, str] = {}  # how the value of a node is read: a name, or a tensor of the module
        nodes = [node for node in graph.nodes if not str(node.target).startswith(_NO_OUTPUT)]
        last_readers = {argument: node for node in nodes for argument in node.all_input_nodes}
        remaining_inputs = iter(inputs)
        for node in nodes:
            if node.op == "placeholder":
                texts[node] = next(remaining_inputs)
            elif node.op == "get_attr":
                texts[node] = self.tensors.get(node.target, node.target)  # else a region's graph: only its name
            elif node.op == "output":
                return lines, [self._expression(output, texts) for output in node.args[0]]
            elif node.op == "call_function":
                before, indent, expression = self._call(graph, node, texts)
                last_read = [x for x in node.all_input_nodes if x.op == "call_function" and last_readers[x] is node]
                self.free += [texts[argument] for argument in reversed(last_read)]
                texts[node] = self._name()  # after the arguments are free: the result may take the name of one
                lines += [*before, f"{indent}{texts[node]} = {expression}"]
        raise CheckpointError("export: the traced network has no output; use --format torch instead")

    def _name(self) -> str:
        """Return a name for a result: one that nothing reads any more, so that its memory is freed."""
        if self.free:
            return self.free.pop()
        self.number += 1
        name = f"x{self.number}"
        return self._name() if name in self.inputs else name

    def _call(self, graph: fx.Graph, node: fx.Node, texts: Mapping[fx.Node, str]) -> _Assigned:
        if str(node.target) == "wrap_with_set_grad_enabled":
            return self._without_gradients(graph, node, texts)
        arguments = [self._expression(value, texts) for value in node.args]
        arguments += [f"{key}={self._expression(value, texts)}" for key, value in node.kwargs.items()]
        return [], "", f"{_function(node.target)}({', '.join(arguments)})"

    def _without_gradients(self, graph: fx.Graph, node: fx.Node, texts: Mapping[fx.Node, str]) -> _Assigned:
        """Return a region of `torch.no_grad`, which a program holds as a graph of its own, as `_call` does."""
        enabled, region, *values = node.args
        assert isinstance(region, fx.Node) and graph.owning_module is not None
        inner = getattr(graph.owning_module, str(region.target))
        lines, outputs = self._block(inner.graph, tuple(self._expression(value, texts) for value in values))
        opening = f"with torch.set_grad_enabled({enabled!r}):"
        return [opening, *(f"    {line}" for line in lines)], "    ", f"({', '.join(outputs)},)"

    def _expression(self, value: Any, texts: Mapping[fx.Node, str]) -> str:
        if isinstance(value, fx.Node):
            return texts[value]
        if isinstance(value, (list, tuple)):
            items = ", ".join(self._expression(item, texts) for item in value)
            return f"[{items}]" if isinstance(value, list) else f"({items},)"
        if isinstance(value, torch.device):
            return self.device  # of the inputs, not that of the export
        if isinstance(value, float) and repr(value) in ("inf", "-inf", "nan"):
            return f'float("{value}")'
        if isinstance(value, (*_LITERALS, torch.dtype, torch.layout, torch.memory_format)):
            return repr(value)
        raise CheckpointError(
            f"export: a {type(value).__name__} cannot be written as Python; use --format torch instead"
        )


def _function(target: Callable[..., Any] | str) -> str:
    """Return how to name an operator: `aten.relu`, `aten.to.dtype`, `operator.mul`."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target).removesuffix(".default")
    name = getattr(target, "__name__", "")
    if getattr(operator, name, None) is target:
        return f"operator.{name}"
    if getattr(torch, name, None) is target:
        return f"torch.{name}"
    raise CheckpointError(f"export: {name or target} cannot be written as Python; use --format torch instead")
