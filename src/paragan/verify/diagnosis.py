"""What can be seen of a network from outside that explains why it breaks a law."""

from __future__ import annotations

import random
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.overrides import TorchFunctionMode

from paragan.core.types import DiscriminatorOutput, GeneratorOutput, Side
from paragan.game import network
from paragan.game.network import CalledNetwork
from paragan.layers.random import preserved_state, uses_random_numbers
from paragan.layers.update_once import mixing_layers
from paragan.parallel._blocks import blocks
from paragan.verify.reference_run import NEAR, VerifiedNetworks, max_difference, network_inputs

_ASKING = {"item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__"}
_NOT_THEIRS = (str(Path(__file__).resolve().parent.parent), str(Path(traceback.__file__).parent), "<")
_CALLER = str(Path(network.__file__).resolve())
_HOOKED_SPECTRAL = "SpectralNorm"  # of torch.nn.utils.spectral_norm, a hook


@dataclass(frozen=True)
class NetworkTraits:
    """Of one network, names as in its `named_modules`.

    mixing: batch norms. drawing: layers that say that they draw. secret: whose generator a forward draws from without
    saying so. iterating: modules with torch's spectral norm. outside: (weight, block) of weights used outside the
    forward of their block. asks: where a forward asks a tensor for its value. rows: how much a row depends on the
    number of rows it is called with. low: the format of what comes back, where it is no float64. functions: autograd
    Functions that are not torch's own.
    """

    mixing: tuple[str, ...] = ()
    drawing: tuple[str, ...] = ()
    secret: str = ""
    iterating: tuple[str, ...] = ()
    outside: tuple[tuple[str, str], ...] = ()
    asks: str = ""
    rows: float = 0.0
    low: str = ""
    functions: tuple[str, ...] = ()

    @property
    def draws(self) -> bool:
        return bool(self.drawing)


def inspect_network(subject: VerifiedNetworks, side: Side) -> NetworkTraits:
    """From the modules, one watched forward, and one of half the rows."""
    net = subject.net(side)
    watch = _Watch(net)
    before = _generators()
    given = network_inputs(subject, side)
    with preserved_state(net):
        with watch.following():
            out = network_output(side, net, given)
        moved = next((name for name, state in _generators().items() if state != before[name]), "")
    return NetworkTraits(
        mixing=_named(net, mixing_layers(net).__contains__),
        drawing=_named(
            net, lambda module: uses_random_numbers(module) and not any(map(uses_random_numbers, module.children()))
        ),
        secret="" if moved == "torch" and uses_random_numbers(net) else moved,
        iterating=_named(net, has_torch_spectral_norm),
        outside=tuple(watch.outside),
        asks=watch.asks,
        rows=0.0 if moved else _rows(subject, side),
        low="" if out.dtype == torch.float64 else str(out.dtype).removeprefix("torch."),
        functions=_functions(out),
    )


def network_output(side: Side, net: nn.Module, given: tuple[Tensor | None, ...]) -> Tensor:
    """Images, or logits."""
    found = CalledNetwork(net)(*given)
    return GeneratorOutput.of(found).images if side is Side.G else DiscriminatorOutput.of(found).logits_B


def has_torch_spectral_norm(module: nn.Module) -> bool:
    """Whether torch's spectral norm, which advances at every forward in training, lies on it."""
    hooks = module._forward_pre_hooks.values()
    return isinstance(module, parametrizations._SpectralNorm) or any(
        type(hook).__name__ == _HOOKED_SPECTRAL for hook in hooks
    )


def _named(net: nn.Module, wanted: Any) -> tuple[str, ...]:
    found = ((name or "the network", module) for name, module in net.named_modules() if wanted(module))
    return tuple(f"{name.split('.parametrizations.')[0]} ({type(module).__name__})" for name, module in found)


def _generators() -> dict[str, bytes]:
    """States of what a forward may draw from."""
    _, keys, position, *_ = np.random.get_state()  # as a tuple, of the one generator that functions of numpy.random use
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy.random": np.asarray(keys).tobytes() + str(position).encode(),
        "random": repr(random.getstate()).encode(),
    }


def _rows(subject: VerifiedNetworks, side: Side) -> float:
    """Half the rows alone beside the same rows among all: two networks, so that no call follows another.

    Batch norms are in evaluation, for their statistics span ranks: whatever else mixes rows is seen.
    """
    half = subject.batch // 2
    alone, among = subject.net(side), subject.net(side)
    for module in mixing_layers(alone) | mixing_layers(among):
        module.eval()
    with torch.no_grad():
        few = network_output(side, alone, network_inputs(subject, side, half))
        found = max_difference(few, network_output(side, among, network_inputs(subject, side))[:half])
    return found if found > NEAR else 0.0


def _functions(out: Tensor) -> tuple[str, ...]:
    todo, seen = [out.grad_fn], {out.grad_fn}
    found: dict[str, None] = {}
    while todo:
        node = todo.pop()
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            found[type(node).__name__.removesuffix("Backward")] = None
        following = [after for after, _ in (node.next_functions if node is not None else ())]
        todo += [after for after in following if after not in seen]
        seen.update(following)
    return tuple(found)


class _Watch(TorchFunctionMode):
    """Sees every call of torch in a forward: weights outside their block's forward, values that are asked for."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        names = {module: name for name, module in net.named_modules()}
        self.blocks = {block: names[block] for block in blocks(net)}
        weights = {id(weight): name for name, weight in net.named_parameters()}
        self.owners = {id(w): (weights[id(w)], block) for block in self.blocks for w in block.parameters()}
        self.inside: list[nn.Module] = []
        self.outside: dict[tuple[str, str], None] = {}
        self.asks = ""

    @contextmanager
    def following(self) -> Iterator[None]:
        hooks = []
        for block in self.blocks:
            hooks.append(block.register_forward_pre_hook(lambda module, _: self.inside.append(module)))
            hooks.append(block.register_forward_hook(lambda *_: self.inside.pop() and None, always_call=True))
        try:
            with self:
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in _ASKING:
            self.asks = self.asks or user_code_line()
        if isinstance(found, Tensor) and found.requires_grad and not isinstance(found, nn.Parameter):
            for used in (*args, *(kwargs or {}).values()):
                weight, block = self.owners.get(id(used), ("", None))
                if block is not None and block not in self.inside:
                    self.outside[weight, self.blocks[block]] = None
        return found


def user_code_line() -> str:
    """The line of the user's own code that is being run; empty where there is none."""
    frames = traceback.extract_stack()
    inside = next((n for n, frame in enumerate(frames) if frame.filename == _CALLER), len(frames))
    for frame in reversed(frames[inside:]):
        if not frame.filename.startswith(_NOT_THEIRS) and "site-packages" not in frame.filename:
            return f"{Path(frame.filename).name}:{frame.lineno}"
    return ""
