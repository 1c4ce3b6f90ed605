"""Traits of a network, found without reading its code."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from paragan.core import rng
from paragan.core.outputs import DiscriminatorOutput, GeneratorOutput
from paragan.core.row_draws import rows_of_calls, turn_draws
from paragan.core.source import dtype_name
from paragan.core.types import Side
from paragan.extensions.verify.forward_trace import ForwardTrace
from paragan.extensions.verify.reference_run import NEAR, VerifiedNetworks, max_difference, network_inputs
from paragan.game.network import CalledNetwork
from paragan.layers.random import RowDrawing, preserved_state, uses_random_numbers
from paragan.layers.update_once import mixing_layers

_SPECTRAL_HOOK = "SpectralNorm"  # class name of the hook of torch.nn.utils.spectral_norm


@dataclass(frozen=True, kw_only=True)
class NetworkTraits:
    """Traits of one network, with names as in its `named_modules`.

    mixing_layers: batch norms. random_layers: layers that declare that they draw from torch's
    generator, not by row. dropout: those of `nn.Dropout` and its kind. draws_globally: whether a
    forward draws from a global generator of torch, numpy or Python. torch_spectral_norms: modules with
    the spectral norm of torch. used_outside: (weight, block) of weights that are used outside the
    forward of their block. value_access: source line where a forward reads the value of a tensor.
    row_dependence: how much a row changes with the number of rows. low_precision: dtype of the
    output if it is not float64. custom_functions: autograd Functions written in Python, the likely
    cause of a wrong second derivative.
    """

    mixing_layers: tuple[str, ...] = ()
    random_layers: tuple[str, ...] = ()
    dropout: tuple[str, ...] = ()
    draws_globally: bool = False
    torch_spectral_norms: tuple[str, ...] = ()
    used_outside: tuple[tuple[str, str], ...] = ()
    value_access: str = ""
    row_dependence: float = 0.0
    low_precision: str = ""
    custom_functions: tuple[str, ...] = ()


Traits = Mapping[Side, NetworkTraits]


def inspect_network(subject: VerifiedNetworks, side: Side) -> NetworkTraits:
    """Find the traits from the modules, one traced forward, and one forward on half of the rows."""
    subject = subject.without_dropout()
    net = subject.net(side)
    trace = ForwardTrace(net)
    inputs = network_inputs(subject, side)
    mixing = mixing_layers(net)
    with preserved_state(net):
        before = rng.global_states()
        with trace.recording(), turn_draws([0], side.value), rows_of_calls(subject.real().rows):
            out = network_output(side, net, inputs)
        draws_globally = rng.global_states() != before
    return NetworkTraits(
        mixing_layers=_module_names(net, lambda module: module in mixing),
        random_layers=_module_names(net, lambda module: _draws_from_generator(module) and not _is_dropout(module)),
        dropout=_module_names(net, _is_dropout),
        draws_globally=draws_globally,
        torch_spectral_norms=_module_names(net, has_torch_spectral_norm),
        used_outside=tuple(trace.used_outside),
        value_access=trace.value_access,
        row_dependence=0.0 if draws_globally else _row_dependence(subject, side),
        low_precision="" if out.dtype == torch.float64 else dtype_name(out.dtype),
        custom_functions=_custom_functions(out),
    )


def _draws_from_generator(module: nn.Module) -> bool:
    """Return whether this module, not one inside it, draws from torch's generator."""
    if isinstance(module, RowDrawing) or any(map(uses_random_numbers, module.children())):
        return False
    return uses_random_numbers(module)


def _is_dropout(module: nn.Module) -> bool:
    return isinstance(module, nn.modules.dropout._DropoutNd)


def network_output(side: Side, net: nn.Module, inputs: tuple[Tensor | None, ...]) -> Tensor:
    """Call the network: return images of a generator, logits of a discriminator."""
    out = CalledNetwork(module=net)(*inputs)
    return GeneratorOutput.of(out).images if side is Side.G else DiscriminatorOutput.of(out).logits_B


def has_torch_spectral_norm(module: nn.Module) -> bool:
    """Return whether the module has torch's spectral norm, which every training forward changes."""
    hooks = {type(hook).__name__ for hook in module._forward_pre_hooks.values()}
    return isinstance(module, parametrizations._SpectralNorm) or _SPECTRAL_HOOK in hooks


def _module_names(net: nn.Module, condition: Callable[[nn.Module], bool]) -> tuple[str, ...]:
    modules = ((name or "the network", module) for name, module in net.named_modules() if condition(module))
    return tuple(f"{name.split('.parametrizations.')[0]} ({type(module).__name__})" for name, module in modules)


def _row_dependence(subject: VerifiedNetworks, side: Side) -> float:
    """Compare half of the rows with the same rows of the whole batch, on two new networks.

    Batch norms are in evaluation mode because their statistics span ranks.
    """
    half = subject.batch // 2
    net_half = subject.net(side)
    net_whole = subject.net(side)
    for module in mixing_layers(net_half) | mixing_layers(net_whole):
        module.eval()
    with torch.no_grad():
        out_half = network_output(side, net_half, network_inputs(subject, side, half))
        out_whole = network_output(side, net_whole, network_inputs(subject, side))
    difference = max_difference(out_half, out_whole[:half])
    return difference if difference > NEAR else 0.0


def _custom_functions(out: Tensor) -> tuple[str, ...]:
    """Return the names of the autograd Functions in the graph of an output, each once."""
    nodes = [out.grad_fn]
    visited = set()
    names: list[str] = []
    while nodes:
        node = nodes.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            names.append(type(node).__name__.removesuffix("Backward"))
        nodes += [next_node for next_node, _ in node.next_functions]
    return tuple(dict.fromkeys(names))
