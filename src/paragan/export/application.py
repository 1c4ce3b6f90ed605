"""Application of a trained generator to inputs of a user: images and audio of any size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from paragan.core.errors import ConfigError, DataError, is_out_of_memory
from paragan.core.printable import size_text
from paragan.core.source import AudioFormat
from paragan.export.tiles import Call, Progress, Tiling, call_in_tiles, cut, pad_to_multiple

MAX_PIXELS = 1 << 22  # of an output that is computed in one piece
MAX_SAMPLES = 1 << 21  # of audio, likewise
_TILE = {"image": 1024, "audio": 1 << 19}  # of the output
_OVERLAP = {"image": 64, "audio": 1 << 13}  # of the input
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
    as large. kind: of both. multiple, minimum: of the sizes that the network takes; others are padded, and the
    output is cut. audio: format of audio; None: not known. derive: computes the input of `net` from audio.
    progress: receives the share of the tiles that are done.
    """

    net: nn.Module
    call: Call
    kind: Kind
    channels: int
    multiple: int
    minimum: int
    scale: Fraction
    audio: AudioFormat | None = None
    derive: Call | None = None
    progress: Progress = lambda share: None

    def __call__(self, x: Tensor, *, tile: int | None = None, overlap: int | None = None) -> Tensor:
        """Return the outputs of x (B, channels, *sizes), on the CPU.

        tile: side of tiles, in pixels or samples of the input; None: the whole input, in tiles where the output
        has more than 4 million pixels or 2 million samples. overlap: of tiles; None: 64 pixels, 8,192 samples.
        Raises `ConfigError` if the network fails on inputs of this size.
        """
        x = self._checked(x)
        self.check_tiles(tile, overlap)
        axes = x.dim() - 2
        largest = math.ceil((MAX_PIXELS if self.kind == "image" else MAX_SAMPLES) / self.scale**axes)
        tiling = Tiling(
            max_elements=largest if tile is None else tile**axes,
            tile=tile or math.ceil(_TILE[self.kind] / self.scale),
            overlap=_OVERLAP[self.kind] if overlap is None else overlap,
            multiple=self.multiple,
            minimum=self.minimum,
            scale=self.scale,
            is_signal=self.kind == "audio",
            progress=self.progress,
        )
        return call_in_tiles(partial(_checked_call, self.call), x, tiling)

    def check_tiles(self, tile: int | None, overlap: int | None) -> None:
        """Raise `ConfigError` for a tile and an overlap that do not fit together; arguments of a call."""
        for name, value, minimum in (("tile", tile, 1), ("overlap", overlap, 0)):
            if value is not None and (type(value) is not int or value < minimum):
                raise ConfigError(f"apply: {name}={value!r} is invalid; pass an integer from {minimum}")
        side = tile or _TILE[self.kind]
        width = _OVERLAP[self.kind] if overlap is None else overlap
        if width >= side:
            raise ConfigError(f"apply: an overlap of {width} is too large for tiles of {side}; use larger tiles")

    @property
    def has_tokens(self) -> bool:
        return isinstance(self.net, Tokenizer)

    def encode(self, x: Tensor) -> Tensor:
        """Return the tokens of x, int64 (B, ...). Raises `ConfigError` for a generator without tokens."""
        x = self._checked(x)
        with torch.no_grad():
            padded = pad_to_multiple(x, self.multiple, self.minimum, self.kind == "audio")
            return _checked_call(self._tokenizer().encode, padded.to(_device(self.net))).cpu()

    def decode(self, tokens: Tensor, sizes: Sequence[int] | None = None) -> Tensor:
        """Return what tokens stand for, (B, channels, *sizes). sizes: of what was encoded, before it was padded.

        Raises `ConfigError` for tokens that the codebook does not have, and for sizes that are not of these tokens.
        """
        net = self._tokenizer()
        _check_codes(net.quantizer, tokens)  # on an accelerator a wrong index is the end of the process
        with torch.no_grad():
            y = _checked_call(lambda codes: net.decode(net.quantizer.vectors(codes)), tokens.to(_device(self.net)))
        sizes = y.shape[2:] if sizes is None else sizes
        if len(sizes) != y.dim() - 2 or any(size > full for size, full in zip(sizes, y.shape[2:], strict=True)):
            raise ConfigError(
                f"apply: these tokens are of {size_text(y.shape[2:])}, not of {size_text(sizes)}; encode again"
            )
        return cut(y, [slice(size) for size in sizes]).cpu()

    def _tokenizer(self) -> Tokenizer:
        if not isinstance(self.net, Tokenizer):
            raise ConfigError("apply: this generator has no tokens; leave --encode and --decode out")
        return self.net

    def _checked(self, x: Tensor) -> Tensor:
        """Return an input in the precision of the network; `ConfigError` for one that the network does not take."""
        axes = 4 if self.kind == "image" else 3
        if not x.is_floating_point():
            raise ConfigError(
                f"apply: an input has the type {x.dtype}; pass floats in [-1, 1], such as x / 127.5 - 1 of bytes"
            )
        if x.dim() != axes or x.shape[1] != self.channels or 0 in x.shape:
            sizes = "height x width" if self.kind == "image" else "samples"
            raise ConfigError(
                f"apply: an input has the shape {size_text(x.shape[1:])}; pass {self.channels} channels x {sizes}"
            )
        return x.to(next(self.net.parameters()).dtype)


def find_application(
    net: nn.Module,
    call: Call,
    shape: Sequence[int],
    audio: AudioFormat | None = None,
    derive: Call | None = None,
) -> Application:
    """Return what a network does, as seen by its output for silence or grey.

    shape: of an input that it takes. Inputs are padded to a multiple of `net.input_multiple`, or, for a network without
    it, of the largest power of two that divides the sizes of `shape`.
    """
    if len(shape) not in (2, 3) or min(shape) < 1:
        raise ConfigError(f"apply: inputs of {size_text(shape)} are not images or audio; call paragan.load(RUN).net")
    output = _checked_call(call, torch.zeros((1, *shape)))
    common = math.gcd(*shape[1:])
    multiple = int(getattr(net, "input_multiple", common & -common))
    return Application(
        net=net,
        call=call,
        kind="image" if len(shape) == 3 else "audio",
        channels=shape[0],
        multiple=multiple,
        minimum=_smallest_size(call, shape, multiple),
        scale=Fraction(output.shape[-1], shape[-1]),
        audio=audio,
        derive=derive,
    )


def _smallest_size(call: Call, shape: Sequence[int], multiple: int) -> int:
    """Return the first size that a network takes, of a multiple doubled: layers that reflect need more than a pixel."""
    size = multiple
    while size < max(shape[1:]):
        with suppress(ConfigError):
            _checked_call(call, torch.zeros((1, shape[0], *(size for _ in shape[1:]))))
            return size
        size *= 2
    return max(shape[1:])


def _check_codes(quantizer: nn.Module, tokens: Tensor) -> None:
    """Raise `ConfigError` for tokens beyond the codes of a codebook."""
    sizes = [module.num_embeddings for module in quantizer.modules() if isinstance(module, nn.Embedding)]
    low, high = (int(value) for value in tokens.aminmax())
    if low < 0 or high >= min(sizes, default=high + 1):
        raise ConfigError(
            f"apply: tokens from {low} to {high}, but the codebook has {min(sizes, default=0)}; encode with this "
            "generator"
        )


def _checked_call(call: Call, x: Tensor) -> Tensor:
    """Call a network; `ConfigError` if it does not take the size."""
    try:
        return call(x)
    except (RuntimeError, ValueError, IndexError, DataError) as error:
        if is_out_of_memory(error):
            raise ConfigError(
                f"apply: an input of {size_text(x.shape[1:])} does not fit in memory; pass --tile"
            ) from None
        reason = (str(error).splitlines() or [type(error).__name__])[0][:150]
        raise ConfigError(
            f"apply: the generator fails on an input of {size_text(x.shape[1:])} ({reason}); pass another size"
        ) from None


def _device(net: nn.Module) -> torch.device:
    return next(net.parameters()).device
