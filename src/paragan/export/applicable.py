"""`apply` of a trained generator: images, audio and tensors of a user, one or many."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypedDict, Unpack, overload

from PIL import Image
from torch import Tensor

from paragan.core.command import program_command
from paragan.core.errors import ConfigError
from paragan.datasets.base.whole_images import whole_image
from paragan.export.application import Application
from paragan.export.sampled_images import SampledImages
from paragan.game.sampling import Mode

Input = Tensor | Image.Image


class ApplyOptions(TypedDict, total=False):
    """Options of `Applicable.apply`, by name."""

    tile: int | None
    overlap: int | None
    seed: int | None
    mode: Mode | None


class Applicable(ABC):
    """A trained generator that may take files of a user."""

    @abstractmethod
    def application(
        self, direction: str | None = None, seed: int | None = None, mode: Mode | None = None
    ) -> Application:
        """Return what the generator does with inputs of any size.

        direction: of a generator with several, such as `a_to_b`. seed: of latents and dropout, which are the same
        for every input. mode: as of `Sampler.sample`. Raises `ConfigError` for a generator of latents alone, of
        several inputs, or of other tensors than images and audio.
        """

    @overload
    def apply(self, x: Tensor, direction: str | None = None, **options: Unpack[ApplyOptions]) -> Tensor: ...

    @overload
    def apply(self, x: Image.Image, direction: str | None = None, **options: Unpack[ApplyOptions]) -> Image.Image: ...

    @overload
    def apply(
        self, x: Iterable[Input], direction: str | None = None, **options: Unpack[ApplyOptions]
    ) -> Iterator[Input]: ...

    def apply(
        self, x: Input | Iterable[Input], direction: str | None = None, **options: Unpack[ApplyOptions]
    ) -> Input | Iterator[Input]:
        """Apply a generator of images from images, or of audio, to inputs of any size; return the same kind.

        x: a tensor (C, H, W) or (B, C, H, W), audio (C, T) or (B, C, T), in [-1, 1], or a Pillow image; or a list or
        iterator of such, of which each is read and applied when its result is requested. direction, seed, mode: as of
        `application`; tile, overlap: as of `Application`. Raises `ConfigError` as they do.
        """
        application = self.application(direction, options.get("seed"), options.get("mode"))
        sizes = {"tile": options.get("tile"), "overlap": options.get("overlap")}
        application.check_tiles(**sizes)
        if isinstance(x, (list, tuple, Iterator)):
            return (_apply_to_input(application, item, sizes) for item in x)
        return _apply_to_input(application, x, sizes)


def _apply_to_input(application: Application, x: Any, sizes: Mapping[str, int | None]) -> Input:
    if isinstance(x, Image.Image):
        x_BCHW = whole_image(x, application.channels)[None]
        return SampledImages(application(x_BCHW, **sizes))[0]
    if not isinstance(x, Tensor):
        command = f"`{program_command()} apply`"
        raise ConfigError(
            f"apply: x is of type {type(x).__name__}; pass tensors or Pillow images, and files to {command}"
        )
    is_batch = x.dim() == (4 if application.kind == "image" else 3)
    y = application(x if is_batch else x[None], **sizes)
    return y if is_batch else y[0]
