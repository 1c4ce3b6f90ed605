"""Small networks of every image model, and how to call them."""

import copy
import dataclasses
from functools import cache

import torch
from torch import Tensor, nn

from paragan.core import registry
from paragan.core.outputs import DiscriminatorOutput
from paragan.layers.init import initialise
from paragan.layers.update_once import hold_updates

MODELS = [name for name in registry.names("models") if not hasattr(registry.load_module("models", name), "SAMPLE")]
SMALL = {"groups": 4, "embed": 5, "width": 8, "latent": 6, "style": 6, "mixing": 0.0, "noise": False, "dropout": 0.0}
WIDTHS = {"mlp": {"g_widths": (8, 12), "d_widths": (12, 8)}, "flow_unet": {"width": 12}}
CLASSES, BATCH = 3, 4
SIDES = ("Generator", "Discriminator")
SIZES = [(1, 8, 8), (3, 16, 16)]


def options(name: str, **wanted):
    """The file's options, made small, with what of `wanted` it has."""
    kind = registry.options("models", name)
    small = SMALL | WIDTHS.get(name, {}) | wanted
    return kind(**{field.name: small[field.name] for field in dataclasses.fields(kind) if field.name in small})


def is_conditional(name: str) -> bool:
    return any(field.name == "conditional" for field in dataclasses.fields(registry.options("models", name)))


def build(name: str, side: str, classes: int, shape=SIZES[0], seed: int = 0, **wanted) -> nn.Module:
    """A copy of `construct`, which takes longer, mostly for orthogonal weights."""
    return copy.deepcopy(_constructed(name, side, classes, shape, seed, **wanted))


@cache
def _constructed(*arguments, **wanted) -> nn.Module:
    return construct(*arguments, **wanted)


def construct(name: str, side: str, classes: int, shape=SIZES[0], seed: int = 0, **wanted) -> nn.Module:
    net = getattr(registry.load_module("models", name), side)(
        options(name, conditional=classes > 0, **wanted), shape, classes
    )
    initialise(hold_updates(net.double()), seed, side)
    net.tested_shape = shape
    return net


def stirred(net: nn.Module) -> nn.Module:
    """Away from the start, where conditional norms do not yet tell classes apart."""
    with torch.no_grad():
        for number, parameter in enumerate(net.parameters()):
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number), dtype=parameter.dtype)
            parameter.add_(noise, alpha=0.3)
    return net


def inputs(net: nn.Module, classes: int, shape=SIZES[0], dtype=torch.float64) -> tuple[Tensor, Tensor | None]:
    size = (net.latent,) if hasattr(net, "latent") else shape
    x = torch.randn(BATCH, *size, generator=torch.Generator().manual_seed(0), dtype=dtype)
    return x, torch.arange(BATCH) % classes if classes else None


def condition_for(net: nn.Module, x: Tensor) -> Tensor | None:
    """What images are made from, row by row the same; None for networks that take no such thing."""
    if not getattr(net, "takes_condition", False):
        return None
    draws = torch.Generator().manual_seed(1)
    return torch.randn(BATCH, *net.tested_shape, generator=draws, dtype=torch.float64).tanh()[: len(x)].to(x.dtype)


def more_inputs(net: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    """What a network is called with after samples and labels: a condition, or quarters to decode."""
    parts = torch.arange(len(x)) % 4 if getattr(net, "reconstructs", False) else condition_for(net, x)
    return () if parts is None else (parts,)


def call(net: nn.Module, x: Tensor, y: Tensor | None = None) -> Tensor | DiscriminatorOutput:
    return net(x, y, *more_inputs(net, x))


def tensor_of(output: Tensor | DiscriminatorOutput) -> Tensor:
    return output.logits_B if isinstance(output, DiscriminatorOutput) else output


def all_of(output: Tensor | DiscriminatorOutput) -> Tensor:
    """Features, too: what a label says may be there alone."""
    outputs = (output.logits_B, *output.layers) if isinstance(output, DiscriminatorOutput) else (output,)
    return torch.cat([value.reshape(BATCH, -1) for value in outputs], 1)
