"""A generator as a tracer sees it: tensors in, one tensor out, for inputs of several sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.core.network_factory import copy_networks
from paragan.core.outputs import DiscriminatorOutput, GeneratorOutput
from paragan.core.tensor_game import LATENT
from paragan.export.application import Application
from paragan.export.sampler import Sampler
from paragan.export.tensor_sampler import TensorSampler
from paragan.layers.frozen import register_frozen_networks

_TRACED_BATCH = 3  # batch sizes
_CHECKED_BATCHES = (1, 5)
_TRACED_SIZES = 2  # of a network of any size, as multiples of the smallest
_CHECKED_SIZES = (1, 3)


class TensorsOnly(nn.Module):
    """A generator with positional inputs, none of them None, and one tensor as output. program: once it is traced."""

    def __init__(self, network: nn.Module, takes_condition: bool = False) -> None:
        super().__init__()
        self.network = network
        self.takes_condition = takes_condition
        self.program: torch.export.ExportedProgram | None = None

    def forward(self, *inputs: Tensor) -> Tensor:
        if self.takes_condition:
            latent = inputs[0] if len(inputs) > 1 else None
            return GeneratorOutput.of(self.network(latent, None, inputs[-1])).images
        return GeneratorOutput.of(self.network(*inputs)).images


class LogitsOnly(TensorsOnly):
    """A discriminator with positional inputs: images, then labels or a condition; its logits as output."""

    def forward(self, *inputs: Tensor) -> Tensor:
        if self.takes_condition:
            return DiscriminatorOutput.of(self.network(inputs[0], None, inputs[1])).logits_B
        return DiscriminatorOutput.of(self.network(*inputs)).logits_B


@dataclass(frozen=True, kw_only=True)
class Traceable:
    """A network to trace.

    net: its positional inputs to a tensor. names: of the inputs. axes: of each input, the axes whose size is free, with
    the number that divides it. inputs: batch size and sizes, as multiples of the smallest, to inputs. player: whose
    network it is; prefix: how the names of its weights begin in their file; output: name of what it returns.
    """

    net: TensorsOnly
    names: tuple[str, ...]
    axes: tuple[Mapping[int, int], ...]
    inputs: Callable[[int, int], tuple[Tensor, ...]]
    player: str = "generator"
    prefix: str = ""
    output: str = "images"

    @property
    def dynamic_shapes(self) -> tuple[tuple[dict[int, Any], ...]]:
        """What `torch.export` may not fix."""
        batch = torch.export.Dim("batch")
        return (tuple({0: batch, **self._sizes(axes)} for axes in self.axes),)

    def _sizes(self, axes: Mapping[int, int]) -> dict[int, Any]:
        return {axis: multiple * torch.export.Dim(f"size{axis}", min=1) for axis, multiple in axes.items()}

    def traced_inputs(self) -> tuple[Tensor, ...]:
        """Return the inputs with which to trace."""
        return self.inputs(_TRACED_BATCH, _TRACED_SIZES)

    def checked_inputs(self) -> list[tuple[Tensor, ...]]:
        """Return inputs of other batch sizes, and of other sizes, with which to compare."""
        return [self.inputs(batch, size) for batch, size in zip(_CHECKED_BATCHES, _CHECKED_SIZES, strict=True)]


def traceable(sampler: Sampler, direction: str | None = None) -> Traceable:
    """Return the generator of a sampler, or one of its directions, on the CPU.

    Raises `ConfigError` for a direction that it does not have, and for several inputs besides latents.
    """
    if not isinstance(sampler, TensorSampler) and not sampler.takes_condition:
        if direction is not None:
            raise ConfigError("--direction: this generator makes images from latents; leave it out")
        return _of_latents(sampler)
    try:
        application = sampler.application(direction)
    except ConfigError as error:
        raise ConfigError(f"export: {str(error).removeprefix('apply: ')}") from None
    source = sampler.net
    prefix = ""
    if direction is not None:  # one network of several: its weights are a part of the file
        source = getattr(sampler.net, "directions", {})[direction]
        prefix = next(f"{name}." for name, module in sampler.net.named_modules() if module is source)
    net = TensorsOnly(copy_networks(source).cpu(), sampler.takes_condition).eval()
    register_frozen_networks(net)
    names = _input_names(sampler, direction)
    sizes = _free_sizes(application)
    axes = tuple({} if name == LATENT else sizes for name in names)

    def inputs(batch: int, number: int) -> tuple[Tensor, ...]:
        x = _example(application, batch, number)
        return tuple(sampler.latents(batch) if name == LATENT else x for name in names)

    output = "images" if application.kind == "image" else "audio"
    if output in names:  # of a codec: a graph of ONNX has one value of a name
        output = "decoded"
    return Traceable(net=net, names=names, axes=axes, inputs=inputs, prefix=prefix, output=output)


def _input_names(sampler: Sampler, direction: str | None) -> tuple[str, ...]:
    """Return the names of the inputs of a generator that takes more than latents and labels."""
    if sampler.takes_condition:
        return (LATENT, "condition") if sampler.net.latent else ("condition",)
    if direction is not None:
        return ("image",)
    assert isinstance(sampler, TensorSampler)
    return sampler.inputs


def _of_latents(sampler: Sampler) -> Traceable:
    net = TensorsOnly(copy_networks(sampler.net).cpu()).eval()
    register_frozen_networks(net)

    def inputs(batch: int, number: int) -> tuple[Tensor, ...]:
        labels = sampler.labels(batch)
        return tuple(value for value in (sampler.latents(batch), labels) if value is not None)

    names = ("z", "labels") if sampler.num_classes else ("z",)
    return Traceable(net=net, names=names, axes=tuple({} for _ in names), inputs=inputs)


def _free_sizes(application: Application) -> dict[int, int]:
    """Return the free axes of the input, after batch and channels, with the number that divides their size."""
    if application.derive is not None:  # what is computed from audio, such as mel frames, has any number of frames
        return {2: 1}
    return dict.fromkeys((2, 3) if application.kind == "image" else (2,), application.multiple)


def _example(application: Application, batch: int, number: int) -> Tensor:
    """Return a random input. number: its size in units of at least 16 pixels, or of 4 frames."""
    multiple = application.multiple
    is_image = application.kind == "image"
    smallest = max(application.minimum, multiple * (math.ceil(16 / multiple) if is_image else 4))
    # no image is square, so that exchanged axes would be noticed
    sizes = [number * smallest, (number + 1) * smallest] if is_image else [number * smallest]
    x = torch.rand((batch, application.channels, *sizes), generator=torch.Generator().manual_seed(number)) * 2 - 1
    return x if application.derive is None else application.derive(x)
