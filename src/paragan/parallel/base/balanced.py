"""Gradients of single terms at G's output, their weighted sum, and those at a layer of G."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from paragan.core.balancer import Balancer, TermGradients
from paragan.core.capabilities import ALL, Capability, Holder, check_capabilities
from paragan.core.errors import ConfigError
from paragan.core.layout import gather_full
from paragan.core.outputs import GeneratorOutput, sum_of
from paragan.core.protocols import Turn
from paragan.core.types import LossTerms

_SHARED_IMAGES = Holder(
    "a turn of G on images that both players share", ALL - {Capability.LAYER_GRADIENTS}, "use scheme synchronous"
)
_OUTPUT = ""  # the generated tensor, next to the names of additional tensors

Gradients = dict[str, Tensor]  # by name of a generated tensor


@dataclass(frozen=True)
class PartGradients:
    """One micro-batch: what G generated with its graph, leaves with its values, gradients by term."""

    generated: Mapping[str, Tensor]
    leaf: GeneratorOutput
    by_term: dict[str, Gradients] = field(default_factory=dict)

    @classmethod
    def of(cls, output: GeneratorOutput) -> PartGradients:
        """Cut the graph of an output, also of additional tensors."""
        extra = {name: value for name, value in output.extra.items() if value.requires_grad}
        leaves = {name: value.detach().requires_grad_() for name, value in extra.items()}
        leaf = GeneratorOutput(output.images.detach().requires_grad_(), {**output.extra, **leaves})
        return cls({_OUTPUT: output.images, **extra}, leaf)

    def add(self, terms: LossTerms, num_rows: int, scale: Tensor | None) -> LossTerms:
        """Run the backward pass of each term down to the leaves; return the terms without graph."""
        leaves = {name: self.leaf.images if name == _OUTPUT else self.leaf.extra[name] for name in self.generated}
        for term, values in terms.loss_B.items():
            if not values.requires_grad:
                continue
            loss = values.sum() / num_rows  # of the global batch
            # The terms share D's graph, which the next one needs, too.
            torch.autograd.backward(loss if scale is None else loss * scale, retain_graph=True)
            gradients = {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}
            # Unscaled: between steps the scale of fp16 changes, and with it what a balancer averages.
            if scale is not None:
                gradients = {name: gradient / scale for name, gradient in gradients.items()}
            self.by_term[term] = gradients
            for leaf in leaves.values():
                leaf.grad = None  # else the next term would add to the same tensor
        return replace(terms, loss_B={name: values.detach() for name, values in terms.loss_B.items()})

    def only(self, terms: Sequence[str]) -> PartGradients:
        """Return the gradients of these terms alone."""
        return replace(self, by_term={term: self.by_term[term] for term in terms})

    def weighted(self, factors: Mapping[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Return generated tensors, each with the sum of the terms' gradients times their factors."""
        by_name: dict[str, list[Tensor]] = {}
        for term, gradients in self.by_term.items():
            for name, gradient in gradients.items():
                factor = factors.get(term)
                by_name.setdefault(name, []).append(gradient if factor is None else gradient * factor)
        return [(self.generated[name], sum_of(gradients)) for name, gradients in by_name.items()]


def term_gradients(
    parts: Sequence[PartGradients],
    weights: Mapping[str, float],
    sum_over_ranks: Callable[[Tensor], Tensor],
    layer: LayerRecord | None,
    turn: Turn,
) -> TermGradients:
    """Return the gradients of all terms that depend on G's output."""
    names = [term for term, gradients in parts[-1].by_term.items() if _OUTPUT in gradients]
    return TermGradients(
        at_output={name: [part.by_term[name][_OUTPUT] for part in parts] for name in names},
        rows=turn.feed.rows,
        weights=weights,
        sum_over_ranks=sum_over_ranks,
        layer_norm=None if layer is None else partial(layer.norm, parts, sum_over_ranks),  # before G's backward pass
        intervals={penalty.name: penalty.interval for penalty in turn.penalties},
        postponed=[penalty.name for penalty in turn.postponed],
        absent=[penalty.name for penalty in turn.absent],
    )


def check_balanced_turn(turn: Turn, balancer: Balancer, is_alone: bool) -> None:
    """Raise `ConfigError` for a turn without all samples, and for a balancer of a layer on images made before.

    is_alone: gradients are not reduced over ranks.
    """
    rows = turn.feed.rows
    if is_alone and rows.count < rows.total:
        raise ConfigError(
            f"balancer {balancer.name} needs the gradients of all {rows.total} samples of the batch, but only "
            f"{rows.count} are available here; use a strategy that reduces gradients (ddp, zero1, zero2, zero3)"
        )
    if turn.feed.fakes is not None:  # G does not run in this turn, so no layer can be recorded
        check_capabilities(_SHARED_IMAGES, balancer.needs)


class _WithoutHooks(nn.Module):
    """A call of a layer without the hooks of a strategy."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *inputs: Any) -> Any:
        return self.layer.forward(*inputs)


@dataclass(frozen=True)
class LayerRecord:
    """A layer of G with the inputs and outputs of its last call for each micro-batch."""

    name: str
    layer: nn.Module
    calls: list[tuple[tuple[Any, ...], Tensor]] = field(default_factory=list)

    def norm(
        self, parts: Sequence[PartGradients], sum_over_ranks: Callable[[Tensor], Tensor], terms: Sequence[str]
    ) -> Tensor:
        """Return the norm of the summed gradient of terms at the layer's weights, without bias.

        The layer is called again on the recorded inputs with whole weights, so that a strategy may
        shard them. Only before G's backward pass, which frees the graph from its output to the layer. Collective.
        """
        # copies, because a strategy frees gathered weights after the backward pass below
        weights = {
            f"layer.{name}": _detached_float32(gather_full(weight.detach())).clone()
            for name, weight in self.layer.named_parameters()
        }
        compared = [weight.requires_grad_() for name, weight in weights.items() if name != "layer.bias"]
        sums = [torch.zeros_like(weight) for weight in compared]
        if len(self.calls) != len(parts):
            raise ConfigError(
                f"balancer.last_layer={self.name} has {len(self.calls)} calls for {len(parts)} micro-batches; name a "
                "layer that G calls once, or leave last_layer out, to compare at G's output"
            )
        for part, (inputs, output) in zip(parts, self.calls, strict=True):
            at_layer_output = self._at_layer_output(part.only(terms).weighted({}), output)
            recomputed = functional_call(_WithoutHooks(self.layer), weights, tuple(map(_detached_float32, inputs)))
            gradients = torch.autograd.grad(recomputed, compared, at_layer_output.to(recomputed.dtype))
            sums = [before + gradient for before, gradient in zip(sums, gradients, strict=True)]
        return sum_over_ranks(torch.cat([value.flatten() for value in sums])).norm()

    def _at_layer_output(self, gradients: Sequence[tuple[Tensor, Tensor]], output: Tensor) -> Tensor:
        generated = [tensor for tensor, _ in gradients]
        of_terms = [gradient for _, gradient in gradients]
        (at_layer,) = torch.autograd.grad(generated, output, of_terms, retain_graph=True, allow_unused=True)
        if at_layer is None:
            raise ConfigError(
                f"balancer.last_layer={self.name}: G's output does not depend on this layer; name G's "
                "last layer, or leave last_layer out, to compare at G's output"
            )
        return at_layer


@contextmanager
def recorded_layer(net: nn.Module, balancer: Balancer) -> Iterator[LayerRecord | None]:
    """Record the calls of the balancer's layer inside, one for each micro-batch."""
    if balancer.layer is None:
        yield None
        return
    modules = dict(net.named_modules())
    layer = modules.get(balancer.layer) or modules[f"module.{balancer.layer}"]  # in a wrapper
    record = LayerRecord(balancer.layer, layer)
    handle = layer.register_forward_hook(lambda layer, inputs, output: record.calls.append((inputs, output)))
    try:
        yield record
    finally:
        handle.remove()


def _detached_float32(value: Any) -> Any:
    """Return an input without graph, in float32 if it was computed in half precision."""
    if not isinstance(value, Tensor):
        return value
    return value.detach().float() if value.dtype in (torch.bfloat16, torch.float16) else value.detach()
