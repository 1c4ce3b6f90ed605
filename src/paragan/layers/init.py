"""Initial weights, drawn by the name of each tensor.

A tensor's value depends on (seed, stream, its name, its shape) alone: not on the order of construction, torch's
global generator, or the ranks that hold it. It is drawn in float32 on the CPU and copied to the parameter.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod, sqrt
from typing import cast

import torch
from torch import Generator, Tensor, nn
from torch.nn.utils import parametrize

from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.layout import copy_full
from paragan.layers.adapter import base_names
from paragan.layers.batch_norm import AffineBatchNorm
from paragan.layers.conditional_norm import ConditionalBatchNorm
from paragan.layers.spectral_norm import SpectralNorm

# (empty tensor, fan-in of its layer, generator); fills the tensor
Draw = Callable[[Tensor, int, Generator], object]

_NORMS = (AffineBatchNorm, nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm)


def initialise(net: nn.Module, seed: int, stream: str) -> None:
    """Draw all parameters by the scheme `net.weight_init`; without one the weights are unchanged.

    Sharded networks get shards of the same weights; a rank holds at most one whole tensor at a
    time. Spectral norm's vectors are drawn and warmed up on the new weights. Class-conditional
    norms start at gain 1 and bias 0 in every scheme. Modules of other types with parameters need
    `fill(role, tensor, generator)`. Raises `ConfigError` for an unknown scheme or parameter.
    """
    name = getattr(net, "weight_init", None)
    if name is None:
        return
    if name not in SCHEMES:
        raise ConfigError(f"weight_init must be one of {', '.join(SCHEMES)}, not {name!r}")
    # a weight with an adapter is drawn by its name without one, so that adapters change no other draw
    known_as = {below: plain for plain, below in base_names(net).items()}
    for where, module in net.named_modules():
        for path, role, parameter in _module_parameters(module):
            full_name = f"{where}.{path}" if where else path
            drawn_as = known_as.get(full_name, full_name)
            value = torch.empty(parameter.shape, device="cpu")
            _fill(SCHEMES[name], module, role, value, rng.generator(seed, "init", stream, drawn_as))
            copy_full(parameter, value)
            if parametrize.is_parametrized(module, role):
                key = (seed, "init", stream, full_name.removesuffix(".original"))
                weight = value.to(parameter.device, parameter.dtype)
                _start_spectral_norm(_parametrizations(module, role), weight, key)


@dataclass(frozen=True)
class InitScheme:
    """Initial distributions of each kind of parameter."""

    weight: Draw
    embedding: Draw
    bias: Draw
    gain: Draw


def _constant(value: float) -> Draw:
    return lambda tensor, fan_in, generator: tensor.fill_(value)


def _normal(std: float, mean: float = 0.0) -> Draw:
    return lambda tensor, fan_in, generator: tensor.normal_(mean, std, generator=generator)


def _orthogonal(tensor: Tensor, fan_in: int, generator: Generator) -> None:
    nn.init.orthogonal_(tensor, generator=generator)


def _glorot(tensor: Tensor, fan_in: int, generator: Generator) -> None:
    nn.init.xavier_uniform_(tensor, generator=generator)


def _by_fan_in(tensor: Tensor, fan_in: int, generator: Generator) -> None:
    bound = 1 / sqrt(fan_in)
    tensor.uniform_(-bound, bound, generator=generator)


SCHEMES = {
    # Radford et al. 2016, section 4: N(0, 0.02); gains N(1, 0.02) as in their published code
    "normal_0.02": InitScheme(_normal(0.02), _normal(0.02), _constant(0), _normal(0.02, 1.0)),
    # Saxe et al. 2014; Brock et al. 2019, appendix C
    "orthogonal": InitScheme(_orthogonal, _orthogonal, _constant(0), _constant(1)),
    # Glorot & Bengio 2010, equation 16; SNGAN's code has a gain of sqrt(2) in residual blocks
    "glorot": InitScheme(_glorot, _glorot, _constant(0), _constant(1)),
    # torch's constructors: U(-1, 1) / sqrt(fan_in) for weights and biases, N(0, 1) for embeddings
    "torch": InitScheme(_by_fan_in, _normal(1.0), _by_fan_in, _constant(1)),
}


def _module_parameters(module: nn.Module) -> Iterator[tuple[str, str, Tensor]]:
    """Yield (path below the module, role, tensor) of direct parameters, parametrised ones too."""
    if isinstance(module, parametrize.ParametrizationList):
        return
    for role, parameter in module.named_parameters(recurse=False):
        yield role, role, parameter
    if parametrize.is_parametrized(module):
        for role in cast(nn.ModuleDict, module.parametrizations):
            original = _parametrizations(module, role).original
            yield f"parametrizations.{role}.original", role, original


def _fill(scheme: InitScheme, module: nn.Module, role: str, tensor: Tensor, generator: Generator) -> None:
    if fill := getattr(module, "fill", None):
        fill(role, tensor, generator)
    elif isinstance(module, ConditionalBatchNorm):
        tensor.fill_(1.0 if role == "gain" else 0.0)
    elif isinstance(module, _NORMS):
        (_constant(0) if role == "bias" else scheme.gain)(tensor, 1, generator)
    elif isinstance(module, nn.Embedding):
        scheme.embedding(tensor, 1, generator)
    elif role in ("weight", "bias") and (weight := _raw_weight(module)) is not None:
        draw = scheme.bias if role == "bias" else scheme.weight
        draw(tensor, prod(weight.shape[1:]), generator)
    else:
        kind = type(module).__name__
        raise ConfigError(
            f"weight_init: {kind}.{role} is unknown to every scheme; give {kind} `fill(role, tensor, generator)`"
        )


def _raw_weight(module: nn.Module) -> Tensor | None:
    """Return the stored weight: a parametrised one, if sharded, would be computed from a shard."""
    if parametrize.is_parametrized(module, "weight"):
        return _parametrizations(module, "weight").original
    weight = getattr(module, "weight", None)
    return weight if isinstance(weight, Tensor) else None


def _start_spectral_norm(chain: parametrize.ParametrizationList, weight: Tensor, key: tuple[int | str, ...]) -> None:
    """Draw the vectors of spectral norm. weight: whole, even if this rank holds a shard of it."""
    for number, step in enumerate(chain):
        # its vectors are on the device even if shards of the weight are not
        if isinstance(step, SpectralNorm):
            step.start(weight.to(step.u.device), rng.generator(*key, f"{number}.u"))


def _parametrizations(module: nn.Module, role: str) -> parametrize.ParametrizationList:
    return cast(parametrize.ParametrizationList, cast(nn.ModuleDict, module.parametrizations)[role])
