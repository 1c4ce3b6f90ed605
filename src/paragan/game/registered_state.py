"""Whether a network's weights and buffers are those that its module registers, which alone are trained and saved."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.core.printable import join_some
from paragan.game.gradient_flow import notice

_MAX_NAMED = 5


class RegisteredState:
    """Weights and buffers of a network before its first call in a trial."""

    def __init__(self, net: nn.Module) -> None:
        self.net = net
        self.weights = dict(net.named_parameters())
        self.buffers = {name: None if x is None else x.detach().clone() for name, x, _ in buffers_of(net)}

    def check(self, call: str, outputs: Sequence[Tensor]) -> None:
        """Raise `ConfigError` for weights and buffers that training could not find again; warn of unused weights.

        call: of the network, for messages. outputs: what the call returned, with their graph.
        """
        leaves = graph_leaves(outputs)
        known = {id(weight) for weight in self.weights.values()}
        if strays := [tuple(leaf.shape) for leaf in leaves if id(leaf) not in known]:
            raise ConfigError(
                f"{call} uses weights that the network did not register before it was called (of shape "
                f"{join_some(list(map(str, strays)), _MAX_NAMED)}), so they would not train and not be saved: make "
                "layers in __init__, as attributes or in an nn.ModuleList, and do not replace weights in forward"
            )
        self._check_buffers(call)
        used = set(map(id, leaves))
        trained = {name: weight for name, weight in self.weights.items() if weight.requires_grad}
        if unused := [name for name, weight in trained.items() if id(weight) not in used]:
            notice(
                f"{call} does not use the weights {join_some(unused, _MAX_NAMED)} for its outputs, so they do not "
                "train unless a penalty does: is there a detach? Freeze them (requires_grad_(False)) or leave them out"
            )

    def _check_buffers(self, call: str) -> None:
        for name, value, is_saved in buffers_of(self.net):
            before = self.buffers.get(name)
            if kind_of(before) != kind_of(value):
                raise ConfigError(
                    f"{call} changes its buffer {name!r} from {kind_of(before)} to {kind_of(value)}, which cannot be "
                    "loaded or averaged: register it with its final shape and dtype"
                )
            is_changed = before is not None and value is not None and not torch.equal(before, value)
            if is_changed and not is_saved:
                notice(
                    f"{call} changes its buffer {name!r}, which is not saved (persistent=False), so a resumed run is "
                    "not exact: register it with persistent=True"
                )


def buffers_of(net: nn.Module) -> Iterator[tuple[str, Tensor | None, bool]]:
    """Yield the name, the value and whether it is saved of each buffer, also of those without a value."""
    for prefix, module in net.named_modules():
        for name, value in module._buffers.items():
            yield f"{prefix}.{name}".strip("."), value, name not in module._non_persistent_buffers_set


def kind_of(value: Tensor | None) -> str:
    """Return the shape and dtype of a tensor."""
    return "no value" if value is None else f"{tuple(value.shape)} {value.dtype}"


def graph_leaves(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the leaves of a graph that gather gradients, each once."""
    leaves = {}
    nodes = [output.grad_fn for output in outputs if output.grad_fn is not None]
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        if (leaf := getattr(node, "variable", None)) is not None:  # of torch's AccumulateGrad
            leaves[id(leaf)] = leaf
        unseen = {earlier for earlier, _ in node.next_functions if earlier is not None} - seen
        seen |= unseen
        nodes += unseen
    return list(leaves.values())
