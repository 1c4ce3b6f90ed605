"""Sample sheets and latent walks of a generator: the latents and classes of every tile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from PIL import Image
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.printable import counted
from paragan.evaluation.fixed_samples import side_by_side
from paragan.export.class_labels import Label
from paragan.export.sampled_images import SampledImages
from paragan.export.sampler import Sampler
from paragan.game.sampling import Mode
from paragan.storage.animation import save_frames
from paragan.storage.image_sheet import make_sheet
from paragan.writers.images import to_pil_image

_SINGLE_TILE_PX = 128  # a single small image is enlarged to this
COLUMNS = 10


@runtime_checkable
class StyleMixer(Protocol):
    """A generator that mixes its styles, (layers, length); it is called with (z, y, shift)."""

    styles: tuple[int, int]

    def mixing_shift(self, z_BZ: Tensor, other_BZ: Tensor, y_B: Tensor | None, layer: int) -> Tensor:
        """Return the shift that replaces the styles of `layer` and the later ones by those of other latents."""


@dataclass(frozen=True)
class Sheet:
    """A layout of tiles, `columns` per row: tile i has latent which_B[i] and class y_B[i]."""

    which_B: Tensor
    y_B: Tensor | None
    columns: int

    @property
    def num_latents(self) -> int:
        return int(self.which_B.max()) + 1


def latent_sheet(sampler: Sampler, num: int, columns: int, labels: Sequence[Label], seed: int | None) -> Sheet:
    """Lay out one latent per tile. labels: taken in turn; empty: drawn."""
    return Sheet(torch.arange(num), sampler.labels(num, labels or None, seed, "--class"), min(num, columns))


def class_sheet(sampler: Sampler, labels: Sequence[Label], rows: int | None, columns: int) -> Sheet:
    """Lay out one class per row and the same latents in every row. labels: empty: all classes."""
    if not sampler.num_classes:
        raise ConfigError("--classes: the generator is unconditional; leave --classes out")
    if not sampler.num_comparable_classes:
        raise ConfigError("--classes: this generator ignores its labels: all rows would be equal; leave --classes out")
    classes = labels or range(sampler.num_classes)
    if rows is not None and rows > len(classes):
        raise ConfigError(
            f"--grid: {rows} rows are more than the {counted(len(classes), 'class')}; use at most one row per class"
        )
    y_B = sampler.labels(rows or len(classes), classes, option="--class")
    assert y_B is not None
    return Sheet(torch.arange(columns).repeat(len(y_B)), y_B.repeat_interleave(columns), columns)


def render_sheet(
    sampler: Sampler,
    tiles: Sheet,
    seed: int | None,
    truncation: float | None,
    progress: Callable[[int], None] = lambda done: None,
    mode: Mode | None = None,
) -> SampledImages:
    """Sample the images of a sheet. progress: receives the number of finished images."""
    z_BZ = sampler.latents(tiles.num_latents, seed, truncation)
    return sampler.generate(z_BZ[tiles.which_B], tiles.y_B, progress, mode, seed=seed, truncation=truncation)


def render_mixed(
    sampler: Sampler,
    shape: tuple[int, int],
    layer: int,
    labels: Sequence[Label],
    seed: int | None,
    progress: Callable[[int], None],
) -> SampledImages:
    """Sample a grid whose rows share the styles below `layer`, and whose columns share those from there on.

    Raises `ConfigError` for a generator without styles, and for a layer that it does not have.
    """
    if not isinstance(sampler.net, StyleMixer):
        raise ConfigError("--mix: this generator has no styles, as StyleGAN2 has; leave it out")
    if layer >= (count := sampler.net.styles[0]):
        raise ConfigError(f"--mix: this generator has {count} layers of styles; pass a number below {count}")
    rows, columns = shape
    z_BZ = sampler.latents(rows + columns, seed)
    y_R = sampler.labels(rows, labels or None, seed, "--class")
    rows_BZ = z_BZ[:rows].repeat_interleave(columns, 0)
    columns_BZ = z_BZ[rows:].repeat(rows, 1)
    y_B = None if y_R is None else y_R.repeat_interleave(columns)
    device = next(sampler.net.parameters()).device
    device_y_B = None if y_B is None else y_B.to(device)
    shift = sampler.net.mixing_shift(rows_BZ.to(device), columns_BZ.to(device), device_y_B, layer)
    return sampler.generate(rows_BZ, y_B, progress, shift_BLW=shift, seed=seed)


def render_pairs(
    sampler: Sampler,
    num: int,
    seed: int | None,
    progress: Callable[[int], None] = lambda done: None,
    mode: Mode | None = None,
) -> tuple[SampledImages, int]:
    """Sample from the first `num` held-out pairs: input, output and target of each.

    Also returns the number of tiles per row.
    """
    target, condition = (x.cpu() for x in sampler.pairs(num))
    outputs = sampler.generate(sampler.latents(num, seed), None, progress, mode, condition, seed).tensor
    return SampledImages(side_by_side(condition, outputs, target)), 3 * min(2, num)


@dataclass(frozen=True)
class Film:
    """A latent walk: tiles move through `points` latents and back, in `frames` frames."""

    tiles: Sheet
    points: int
    frames: int
    mode: Mode | None = None

    def save(
        self, sampler: Sampler, path: Path, seed: int | None, truncation: float | None, progress: Callable[[int], None]
    ) -> None:
        """Write a .webp, .gif or .mp4 file. progress: receives the number of finished frames."""
        count = self.tiles.num_latents
        z_KBZ = sampler.latents(self.points * count, seed, truncation).unflatten(0, (self.points, count))
        min_pixels = _SINGLE_TILE_PX if len(self.tiles.which_B) == 1 else 32

        def frames() -> Iterator[Image.Image]:
            for done, z_BZ in enumerate(sampler.walk(z_KBZ, self.frames), start=1):
                z_BZ = z_BZ[self.tiles.which_B]
                x = sampler.generate(z_BZ, self.tiles.y_B, mode=self.mode, seed=seed, truncation=truncation).tensor
                yield to_pil_image(make_sheet(x, self.tiles.columns, min_pixels))
                progress(done)

        save_frames(frames(), path)
