"""Application of a trained generator to inputs of a user: images and audio of any size."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from paragan.core import registry
from paragan.core.errors import ConfigError, DataError
from paragan.core.from_memory import FROM_MEMORY
from paragan.core.source import AudioFormat
from paragan.core.tensor_game import LATENT
from paragan.export.sampler import Sampler
from paragan.export.tensor_sampler import TensorSampler
from paragan.export.tiles import Call, Tiling, call_in_tiles, cut, pad_to_multiple
from paragan.game.network import CalledNetwork
from paragan.game.sampling import Mode, generate_tensors

MAX_PIXELS = 1 << 22  # of an output that is computed in one piece
MAX_SAMPLES = 1 << 21  # of audio, likewise
_TILE = {"image": 1024, "audio": 1 << 19}
_OVERLAP = {"image": 64, "audio": 1 << 13}
Kind = Literal["image", "audio"]


@runtime_checkable
class Tokenizer(Protocol):
    """A generator that turns its input into tokens of a codebook, and back."""

    quantizer: Any

    def encode(self, x: Tensor, /) -> Tensor:
        """Return the tokens of x, integers (B, ...)."""

    def decode(self, vectors: Tensor, /) -> Tensor:
        """Return what `quantizer.vectors` of tokens stands for."""


@dataclass(frozen=True, kw_only=True)
class Application:
    """What a trained generator does with an input of any size.

    net: the generator. call: maps inputs (B, channels, *sizes) in [-1, 1] to outputs whose sizes are `scale` times
    as large. kind: of both. multiple: of the sizes that the network takes; others are padded, and the output is
    cut. audio: format of audio; None: not known.
    """

    net: nn.Module
    call: Call
    kind: Kind
    channels: int
    multiple: int
    scale: Fraction
    audio: AudioFormat | None = None

    def __call__(self, x: Tensor, *, tile: int | None = None, overlap: int | None = None) -> Tensor:
        """Return the outputs of x (B, channels, *sizes), on the CPU.

        tile: side of tiles, in pixels or samples of the input; None: the whole input, in tiles where the output
        has more than 4 million pixels or 2 million samples. overlap: of tiles; None: 64 pixels, 8,192 samples.
        Raises `ConfigError` if the network fails on inputs of this size.
        """
        self._check(x)
        axes = x.dim() - 2
        largest = math.ceil((MAX_PIXELS if self.kind == "image" else MAX_SAMPLES) / self.scale**axes)
        tiling = Tiling(
            max_elements=largest if tile is None else tile**axes,
            tile=tile or math.ceil(_TILE[self.kind] / self.scale),
            overlap=_OVERLAP[self.kind] if overlap is None else overlap,
            multiple=self.multiple,
            scale=self.scale,
            is_signal=self.kind == "audio",
        )
        return call_in_tiles(partial(_checked_call, self.call), x, tiling)

    def encode(self, x: Tensor) -> Tensor:
        """Return the tokens of x, int64 (B, ...). Raises `ConfigError` for a generator without tokens."""
        self._check(x)
        with torch.no_grad():
            padded = pad_to_multiple(x, self.multiple, self.kind == "audio")
            return _checked_call(self._tokenizer().encode, padded.to(_device(self.net))).cpu()

    def decode(self, tokens: Tensor, sizes: Sequence[int] | None = None) -> Tensor:
        """Return what tokens stand for, (B, channels, *sizes). sizes: of what was encoded, before it was padded."""
        net = self._tokenizer()
        with torch.no_grad():
            y = _checked_call(lambda codes: net.decode(net.quantizer.vectors(codes)), tokens.to(_device(self.net)))
        return y.cpu() if sizes is None else cut(y, [slice(size) for size in sizes]).cpu()

    def _tokenizer(self) -> Tokenizer:
        if not isinstance(self.net, Tokenizer):
            raise ConfigError("apply: this generator has no tokens; leave --encode and --decode out")
        return self.net

    def _check(self, x: Tensor) -> None:
        axes = 4 if self.kind == "image" else 3
        if x.dim() != axes or x.shape[1] != self.channels or 0 in x.shape:
            sizes = "height x width" if self.kind == "image" else "samples"
            raise ConfigError(
                f"apply: an input has the shape {_size(x.shape[1:])}; pass {self.channels} channels x {sizes}"
            )


def find_application(
    sampler: Sampler, direction: str | None = None, seed: int | None = None, mode: Mode | None = None
) -> Application:
    """Return what a generator does with inputs of any size.

    direction: of a generator with several, such as `a_to_b`. seed: of latents and dropout, which are the same for
    every input. mode: as of `Sampler.sample`. Raises `ConfigError` for a generator of latents alone, of several
    inputs, or of other tensors than images and audio.
    """
    net = _directed(sampler, direction)
    mode = mode or sampler.mode
    audio = _audio_format(sampler)
    shape = tuple(sampler.info.shape)
    if net is not sampler.net:
        call = partial(_call_named, net, ("image",), {}, sampler, seed, mode)
        shape = (shape[0], shape[1], shape[2] // 2)  # of one of two images side by side
    elif isinstance(sampler, TensorSampler):
        name = _only_input(sampler)
        derive = {} if audio is None else audio.derived
        call = partial(_call_named, net, sampler.inputs, derive, sampler, seed, mode)
        shape = shape if name in derive else _input_shape(sampler, name, shape)
    elif sampler.takes_condition:
        call = partial(_call_conditioned, sampler, seed, mode)
        shape = (getattr(net, "condition_channels", shape[0]), *shape[1:])
    else:
        raise ConfigError("apply: this generator makes images from latents, not from a file; use `sample`")
    if len(shape) not in (2, 3):
        raise ConfigError(f"apply: inputs of {_size(shape)} are no images or audio; call paragan.load(RUN).net")
    multiple = getattr(net, "input_multiple", None) or _largest_power_of_two(shape[1:])
    probe = _checked_call(call, torch.zeros(1, *shape))
    return Application(
        net=sampler.net,
        call=call,
        kind="image" if len(shape) == 3 else "audio",
        channels=shape[0],
        multiple=multiple,
        scale=Fraction(probe.shape[-1], shape[-1]),
        audio=audio,
    )


def _directed(sampler: Sampler, direction: str | None) -> nn.Module:
    """Return the network of a direction; the generator itself if it has no directions."""
    directions: Mapping[str, nn.Module] = getattr(sampler.net, "directions", {})
    if direction is not None and not directions:
        raise ConfigError("apply: this generator has one direction; leave --direction out")
    if directions and direction not in directions:
        raise ConfigError(f"apply: this generator has the directions {' and '.join(directions)}; pass --direction")
    return directions[direction] if direction is not None else sampler.net


def _only_input(sampler: TensorSampler) -> str:
    names = [name for name in sampler.inputs if name != LATENT]
    if len(names) != 1:
        raise ConfigError(
            f"apply: this generator takes {' and '.join(names) or 'latents alone'}, not one file; call "
            "paragan.load(RUN).net, or use `sample`"
        )
    return names[0]


def _input_shape(sampler: TensorSampler, name: str, sample_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of an input of training; that of the sample where the data is not here."""
    with suppress(DataError, ConfigError, OSError):
        if sampler.held_out is not None and (spec := sampler.held_out().tensors.get(name)):
            return tuple(spec.shape)
    return sample_shape


def _audio_format(sampler: Sampler) -> AudioFormat | None:
    if len(sampler.info.shape) != 2 or sampler.config.data.name == FROM_MEMORY:
        return None
    module = registry.load_chosen("datasets", sampler.config.data)
    find_format = getattr(module, "audio_format", None)
    return None if find_format is None else find_format(sampler.config.data.options)


@torch.no_grad()
def _call_conditioned(sampler: Sampler, seed: int | None, mode: Mode, x: Tensor) -> Tensor:
    return sampler.generate(sampler.latents(len(x), seed), None, mode=mode, conditions=x, seed=seed).tensor


@torch.no_grad()
def _call_named(
    net: nn.Module,
    names: Sequence[str],
    derived: Mapping[str, Callable[[Tensor], Tensor]],
    sampler: Sampler,
    seed: int | None,
    mode: Mode,
    x: Tensor,
) -> Tensor:
    """Call a network by position: latents are drawn, other inputs are x, or computed from it."""
    inputs = [
        sampler.latents(len(x), seed) if name == LATENT else derived[name](x) if name in derived else x
        for name in names
    ]
    weight = next(net.parameters())
    on_device = tuple(value.to(weight.device, weight.dtype) for value in inputs)
    dropout_seed = sampler.seed if seed is None else seed
    return generate_tensors(CalledNetwork(module=net), on_device, mode, dropout_seed).images.float().cpu()


def _checked_call(call: Call, x: Tensor) -> Tensor:
    """Call a network; `ConfigError` if it does not take the size."""
    try:
        return call(x)
    except (RuntimeError, ValueError, DataError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise ConfigError(f"apply: an input of {_size(x.shape[1:])} does not fit in memory; pass --tile") from None
        reason = (str(error).splitlines() or [type(error).__name__])[0][:150]
        raise ConfigError(
            f"apply: the generator fails on an input of {_size(x.shape[1:])} ({reason}); pass another size"
        ) from None


def _largest_power_of_two(sizes: Sequence[int]) -> int:
    """Return the largest power of two that divides all sizes."""
    common = math.gcd(*sizes)
    return common & -common


def _device(net: nn.Module) -> torch.device:
    return next(net.parameters()).device


def _size(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
