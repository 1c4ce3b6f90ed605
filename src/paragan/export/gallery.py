"""Sheets and films of a generator: which latents and classes go where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.evaluation.fixed_samples import side_by_side
from paragan.export.sampler import Label, SampledImages, Sampler
from paragan.game import latents
from paragan.game.sample import Mode
from paragan.storage.animation import save_frames
from paragan.storage.image_sheet import make_sheet
from paragan.writers.images import picture

_LONE_PX = 128  # one small image alone is enlarged to this
COLUMNS = 10


@dataclass(frozen=True)
class Sheet:
    """Tile i shows latent number which_B[i] of class y_B[i]; `columns` to a row."""

    which_B: Tensor
    y_B: Tensor | None
    columns: int

    @property
    def num_latents(self) -> int:
        """How many different latents there are."""
        return int(self.which_B.max()) + 1


def latent_sheet(sampler: Sampler, num: int, columns: int, asked: Sequence[Label], seed: int | None) -> Sheet:
    """A latent per tile; the asked classes in turn, or drawn."""
    return Sheet(torch.arange(num), sampler.labels(num, asked or None, seed, "--class"), min(num, columns))


def class_sheet(sampler: Sampler, asked: Sequence[Label], rows: int | None, columns: int) -> Sheet:
    """A class per row, all unless some are asked for, at most `rows` of them; the same latents in every row."""
    if not sampler.num_classes:
        raise ConfigError("--classes: found an unconditional generator, which has none; leave --classes out")
    if not sampler.num_comparable_classes:
        raise ConfigError("--classes: this generator ignores its labels: all rows would be equal; leave --classes out")
    classes = asked or range(sampler.num_classes)
    if rows is not None and rows > len(classes):
        raise ConfigError(f"--grid: found {rows} rows, expected at most one for each of {len(classes)} classes")
    y_B = sampler.labels(rows or len(classes), classes, what="--class")
    assert y_B is not None
    return Sheet(torch.arange(columns).repeat(len(y_B)), y_B.repeat_interleave(columns), columns)


def render_sheet(
    sampler: Sampler,
    tiles: Sheet,
    seed: int | None,
    truncation: float | None,
    told: Callable[[int], None],
    mode: Mode | None = None,
) -> SampledImages:
    """The images of a sheet. told: how many are done. mode: as `Sampler.sample` has it."""
    z_BZ = sampler.latents(tiles.num_latents, seed, truncation)
    return sampler.generate(z_BZ[tiles.which_B], tiles.y_B, told, mode, seed=seed, truncation=truncation)


def render_pairs(
    sampler: Sampler,
    num: int,
    given: Tensor | None,
    seed: int | None,
    told: Callable[[int], None],
    mode: Mode | None = None,
) -> tuple[SampledImages, int]:
    """Each input, the image made from it and, of held-out pairs, the target; how many to a row.

    given: inputs, (num, C, H, W) in [-1, 1]; the first `num` held-out pairs unless given.
    """
    beside = (given,) if given is not None else sampler.pairs(num)[::-1]
    condition, *target = (x.cpu() for x in beside)
    made = sampler.generate(sampler.latents(num, seed), None, told, mode, condition, seed).tensor
    columns = 2 + len(target)
    return SampledImages(side_by_side(condition, made, *target)), columns * min(2, num)


@dataclass(frozen=True)
class Film:
    """Every tile walks through `points` latents of its own and back to its first, in so many frames."""

    tiles: Sheet
    points: int
    frames: int
    mode: Mode | None = None

    def save(
        self, sampler: Sampler, path: Path, seed: int | None, truncation: float | None, told: Callable[[int], None]
    ) -> None:
        """As the ending of `path` says: .webp, .gif or .mp4. told: how many frames are done."""
        save_frames(self._pictures(sampler, seed, truncation, told), path)

    def _pictures(
        self, sampler: Sampler, seed: int | None, truncation: float | None, told: Callable[[int], None]
    ) -> Iterator[Image.Image]:
        count = self.tiles.num_latents
        z_KBZ = sampler.latents(self.points * count, seed, truncation).unflatten(0, (self.points, count))
        least = _LONE_PX if len(self.tiles.which_B) == 1 else 32
        for done, z_BZ in enumerate(latents.walk(z_KBZ, self.frames), start=1):
            z_BZ = z_BZ[self.tiles.which_B]
            x = sampler.generate(z_BZ, self.tiles.y_B, mode=self.mode, seed=seed, truncation=truncation).tensor
            yield picture(make_sheet(x, self.tiles.columns, least))
            told(done)
