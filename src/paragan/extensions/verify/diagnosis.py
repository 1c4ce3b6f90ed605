"""Traits of a network, found without reading its code, and why it breaks a law or a law does not apply."""

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.overrides import TorchFunctionMode

from paragan.core import rng
from paragan.core.capabilities import Capability, missing
from paragan.core.outputs import DiscriminatorOutput, GeneratorOutput
from paragan.core.row_draws import rows_of_calls, turn_draws
from paragan.core.source import dtype_name
from paragan.core.types import Side
from paragan.extensions.verify.finding import SPECTRAL, LawResult
from paragan.extensions.verify.reference_run import (
    NAMES,
    NEAR,
    TraceDifference,
    VerifiedNetworks,
    make_strategy,
    max_difference,
    network_inputs,
)
from paragan.game import network
from paragan.game.needs import term_needs
from paragan.game.network import CalledNetwork
from paragan.layers.random import RowDrawing, preserved_state, uses_random_numbers
from paragan.layers.update_once import mixing_layers
from paragan.parallel.base.blocks import blocks

# functions of a tensor that read its values
_VALUE_ACCESS = {"item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__"}
_NOT_USER_CODE = (str(Path(__file__).resolve().parent.parent), str(Path(traceback.__file__).parent), "<")
# from whose frame on the stack holds the user's code
_CALLER = str(Path(network.__file__).resolve())
_SPECTRAL_HOOK = "SpectralNorm"  # class name of the hook of torch.nn.utils.spectral_norm


@dataclass(frozen=True, kw_only=True)
class NetworkTraits:
    """Traits of one network, with names as in its `named_modules`.

    mixing_layers: batch norms. random_layers: layers that declare that they draw from torch's
    generator, not by row. dropout: those of `nn.Dropout` and its kind. hidden_generator: random
    generator that a forward draws from without declaring it. used_outside: (weight, block) of weights
    that are used outside the forward of their block. value_access: source line where a forward reads
    the value of a tensor. row_dependence: how much a row changes with the number of rows.
    low_precision: dtype of the output if it is not float64.
    """

    mixing_layers: tuple[str, ...] = ()
    random_layers: tuple[str, ...] = ()
    dropout: tuple[str, ...] = ()
    hidden_generator: str = ""
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
    watch = _Watch(net)
    before = rng.global_states()
    inputs = network_inputs(subject, side)
    mixing = mixing_layers(net)
    random_layers = _module_names(net, lambda module: _draws_from_generator(module) and not _is_dropout(module))
    with preserved_state(net):
        with watch.tracing(), turn_draws([0], side.value), rows_of_calls(subject.real().rows):
            out = network_output(side, net, inputs)
        used_generators = [name for name, state in rng.global_states().items() if state != before[name]]
    generator = used_generators[0] if used_generators else ""
    return NetworkTraits(
        mixing_layers=_module_names(net, lambda module: module in mixing),
        random_layers=random_layers,
        dropout=_module_names(net, _is_dropout),
        hidden_generator="" if generator == "torch" and random_layers else generator,
        torch_spectral_norms=_module_names(net, has_torch_spectral_norm),
        used_outside=tuple(watch.used_outside),
        value_access=watch.value_access,
        row_dependence=0.0 if generator else _row_dependence(subject, side),
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


class _Watch(TorchFunctionMode):
    """Trace of torch calls in a forward: weights used outside their block, tensor values read."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        names = {module: name for name, module in net.named_modules()}
        self.blocks = {block: names[block] for block in blocks(net)}
        weights = {id(weight): name for name, weight in net.named_parameters()}
        self.owners: dict[int, tuple[str, nn.Module]] = {}  # name and block of weights, by identity
        for block in self.blocks:
            self.owners |= {id(weight): (weights[id(weight)], block) for weight in block.parameters()}
        self.running_blocks: list[nn.Module] = []
        self.used_outside: dict[tuple[str, str], None] = {}  # (weight, block), in order, each once
        self.value_access = ""

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Trace the forward inside this context."""

        def leave(_block: nn.Module, _inputs: object, _output: object) -> None:
            self.running_blocks.pop()

        hooks = []
        for block in self.blocks:
            hooks.append(block.register_forward_pre_hook(lambda block, _: self.running_blocks.append(block)))
            hooks.append(block.register_forward_hook(leave, always_call=True))
        try:
            with self:
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in _VALUE_ACCESS:
            self.value_access = self.value_access or user_code_line()
        if isinstance(out, Tensor) and out.requires_grad and not isinstance(out, nn.Parameter):
            for argument in (*args, *(kwargs or {}).values()):
                weight, block = self.owners.get(id(argument), ("", None))
                if block is not None and block not in self.running_blocks:
                    self.used_outside[weight, self.blocks[block]] = None
        return out


def user_code_line() -> str:
    """Return file and line of the user's code that is running, or ""."""
    frames = traceback.extract_stack()
    call = next((number for number, frame in enumerate(frames) if frame.filename == _CALLER), len(frames))
    for frame in reversed(frames[call:]):
        if not frame.filename.startswith(_NOT_USER_CODE) and "site-packages" not in frame.filename:
            return f"{Path(frame.filename).name}:{frame.lineno}"
    return ""


def explain_difference(difference: TraceDifference, traits: Traits) -> str:
    """Return the likely cause of a difference, from the traits of the networks; or ""."""
    if difference.step == 0:
        return "the constructor does not draw from torch's generator alone (numpy? random? the order of a set?)"
    for side, net_traits in traits.items():
        if net_traits.row_dependence:
            return (
                f"{NAMES[side]}: a row changes (by {net_traits.row_dependence:.0e}) with the number of "
                "rows, apart from batch norm: a mean over the batch? make samples independent, "
                "or use paragan.BatchNorm, whose statistics span ranks"
            )
    if any(net_traits.torch_spectral_norms for net_traits in traits.values()):
        return SPECTRAL
    for side, net_traits in traits.items():
        if dtype := net_traits.low_precision:
            return f"{NAMES[side]}: returns {dtype} for float64 inputs; keep the dtype of the input"
        if line := net_traits.value_access:
            return f"{NAMES[side]}: its forward reads the value of a tensor ({line}) and may branch on it"
    return ""


def explain_randomness(traits: Traits) -> str:
    """Return why runs on other splits of the batch differ by design (draws that are not by row), or ""."""
    for side, net_traits in traits.items():
        if net_traits.random_layers or net_traits.hidden_generator:
            source = _first_and_number(net_traits.random_layers) if net_traits.random_layers else "its forward"
            return (
                f"{NAMES[side]}: {source} draws for each call and rank, a known exception of the law; numbers that "
                "no split changes are drawn by row (paragan.layers.random.RowDrawing)"
            )
    return ""


def describe_dropout(traits: Traits) -> str:
    """Return which layers of dropout were switched off for a comparison with other splits of the batch, or ""."""
    layers = {side: net_traits.dropout for side, net_traits in traits.items() if net_traits.dropout}
    described = ", ".join(f"{NAMES[side]}: {_first_and_number(names)}" for side, names in layers.items())
    return f"without dropout, which draws for each call and rank ({described})" if layers else ""


def explain_micro_batches(subject: VerifiedNetworks, traits: Traits, side: Side) -> str:
    """Return why a turn in micro-batches is refused, or differs by design from one batch; or ""."""
    penalties = subject.game.g_penalties if side is Side.G else subject.game.d_penalties
    coupled = ["the loss"] if subject.game.loss.compares else []
    coupled += [penalty.name for penalty in penalties if Capability.COUPLED in penalty.needs]
    if coupled:
        return f"{coupled[0]} compares the samples of a batch, so micro-batches are refused"
    for called in (Side.G, Side.D) if side is Side.G else (Side.D,):  # G's turn runs D, too
        if layers := traits[called].mixing_layers:
            return f"{NAMES[called]}: {_first_and_number(layers)} computes its statistics per micro-batch"
    return explain_randomness(traits)


def explain_sharding(traits: Traits, law: LawResult) -> str:
    """Return why a sharded strategy failed (a weight used while its block is sharded), or ""."""
    is_sharded = Capability.WHOLE_WEIGHTS not in make_strategy(law.strategy.removesuffix(", uneven")).capabilities
    for side, net_traits in traits.items():
        if net_traits.used_outside and law.result == "FAILED" and is_sharded:
            weight, block = net_traits.used_outside[0]
            return (
                f"; {NAMES[side]}: {weight} is used outside the forward of its block {block}, "
                "where it is sharded: call the block itself, or leave the layer out of `blocks`"
            )
    return ""


def unsupported_penalty(subject: VerifiedNetworks, name: str) -> str:
    """Return why `build` would refuse the penalties or the balancer under this strategy, or ""."""
    holder = make_strategy(name).holder
    balancer = () if subject.game.balancer is None else subject.game.balancer.needs
    return missing(holder, (*balancer, *term_needs(subject.penalties, frozenset(), "")))


def unsupported_network(subject: VerifiedNetworks, name: str, num_ranks: int) -> str:
    """Return why that many ranks cannot train one of the networks under this strategy, or ""."""
    strategy = make_strategy(name)
    reasons = [strategy.refusal(subject.net(side), num_ranks) for side in Side]
    return reasons[0] or reasons[1]


def _first_and_number(names: tuple[str, ...]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
