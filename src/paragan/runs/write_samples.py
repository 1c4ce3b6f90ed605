"""Sheets and films of a generator, as files named after their options."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from paragan.core.errors import ConfigError
from paragan.core.files import create_subfolder
from paragan.storage.image_formats import check_animation_path, check_sheet_path

if TYPE_CHECKING:
    from paragan.export.gallery import Sheet
    from paragan.export.sampler import Sampler
    from paragan.export.tensor_sampler import TensorSampler

_MAX_IMAGES = 10_000
_MAX_WORD = 100  # characters
_NUM_PAIRS = 8
_MIXED = (6, 8)  # rows and columns
_NUM_IMAGES = 64
_FRAMES_PER_POINT = 16
Update = Callable[[int, int], None]  # (number done, total)


@dataclass(frozen=True, kw_only=True)
class SampleRequest:
    """Options of `paragan sample`. None: default. grid: ROWSxCOLUMNS. walk: latents of a film."""

    num: int | None = None
    seed: int | None = None
    classes: tuple[str, ...] = ()
    truncation: float | None = None
    out: Path | None = None
    grid: str | None = None
    by_class: bool = False
    walk: int | None = None
    frames: int | None = None
    mode: Literal["eval", "train-stats"] | None = None
    steps: int | None = None
    file_format: Literal["png", "webp"] = "png"
    standing_stats: int | None = None
    mix: int | None = None

    @property
    def has_single_files(self) -> bool:
        """Whether `out` is a folder of images, or an array of them."""
        return self.out is not None and (self.out.suffix in ("", ".npz") or self.out.is_dir())

    def __post_init__(self) -> None:
        """Raise `ConfigError` for options that do not fit together; needs no generator."""
        if self.truncation is not None and not 0 < self.truncation <= 1:
            raise ConfigError(
                f"--truncation must be above 0 and at most 1, not {self.truncation}; leave it out for none"
            )
        has_folder = self.has_single_files and not str(self.out).endswith(".npz")
        if self.file_format != "png" and not has_folder:
            raise ConfigError("--format applies to single files; leave it out, or pass a folder to --out")
        if self.has_single_files:
            options = {"--grid": self.grid, "--walk": self.walk, "--frames": self.frames, "--mix": self.mix}
            if unused := [option for option, value in options.items() if value is not None]:
                raise ConfigError(f"{unused[0]} applies to sheets and films; leave it out, or pass a file to --out")
            return
        if self.num is not None and self.num > _MAX_IMAGES:
            raise ConfigError(
                f"--num: a sheet or film has at most {_MAX_IMAGES:,} images; pass a folder or .npz file to --out"
            )
        if self.out is not None:
            check_path = check_sheet_path if self.walk is None else check_animation_path
            check_path("--out", self.out)
        if self.frames is not None and self.walk is None:
            raise ConfigError("--frames applies to a film; give --walk POINTS too, such as --walk 8")
        if self.mix is not None and (self.walk or self.by_class or self.num or self.truncation):
            raise ConfigError("--mix does not combine with --num, --classes, --walk and --truncation; leave them out")
        if self.num is not None and (self.grid or self.by_class):
            raise ConfigError("--num does not combine with --grid or --classes, which set the number; leave one out")
        _ = self.shape  # which checks the grid

    @property
    def shape(self) -> tuple[int, int] | None:
        """Rows and columns of the sheet. Raises `ConfigError` for an invalid grid."""
        if self.grid is None:
            return None
        if not re.fullmatch(r"[1-9]\d{0,4}x[1-9]\d{0,4}", self.grid, re.ASCII):
            raise ConfigError(f"--grid: {self.grid!r} is not ROWSxCOLUMNS, such as 4x10")
        rows, columns = map(int, self.grid.split("x"))
        if rows * columns > _MAX_IMAGES:
            raise ConfigError(f"--grid: {rows * columns:,} images are too many; a sheet has at most {_MAX_IMAGES:,}")
        return rows, columns

    @property
    def name_words(self) -> list[str]:
        """Options as words of a file name."""
        values = {"grid": self.grid, "class": "-".join(self.classes), "truncation": self.truncation, "mode": self.mode}
        values |= {"steps": self.steps, "standing": self.standing_stats, "mix": self.mix}
        words = [f"{name}-{value}" for name, value in values.items() if value]
        if self.by_class:
            words.append("classes")
        return words


def with_standing_stats(sampler: Sampler, num: int) -> Sampler:
    """Return a sampler with standing statistics over `num` images, which do not depend on those that are written."""
    from paragan.export.tensor_sampler import check_inputs
    from paragan.game import latents
    from paragan.game.sampling import with_standing_statistics

    check_inputs(sampler, "--standing-stats")
    seed = sampler.seed + 1
    z_BZ = sampler.latents(num, seed)
    y_B = sampler.labels(num, seed=seed)
    device = next(sampler.net.parameters()).device
    z_blocks = z_BZ.to(device).split(latents.BLOCK)
    y_blocks = [None] * len(z_blocks) if y_B is None else y_B.to(device).split(latents.BLOCK)
    batches = zip(z_blocks, y_blocks, strict=True)
    return replace(sampler, net=with_standing_statistics(sampler.net, batches))


def write_samples(sampler: Sampler, path: Path, request: SampleRequest, update: Update) -> Path:
    """Write a sheet or a film and return its path. path: run folder or file of the generator."""
    from paragan.export.tensor_sampler import TensorSampler

    if isinstance(sampler, TensorSampler):
        return _write_pictures(sampler, path, request)
    if sampler.takes_condition:
        _check_unused(request, "this generator makes images from images")
        return _write_translated(sampler, path, request, update)
    from paragan.export import gallery

    target = _target(sampler, path, request)
    if request.mix is not None:
        shape = request.shape or _MIXED
        total = shape[0] * shape[1]
        mixed = gallery.render_mixed(
            sampler, shape, request.mix, request.classes, request.seed, lambda n: update(n, total)
        )
        return mixed.save(target, shape[1])
    sheet = _sheet(sampler, request)
    if request.walk is not None:
        frames = request.frames or _FRAMES_PER_POINT * request.walk
        film = gallery.Film(sheet, request.walk, frames, request.mode)
        film.save(sampler, target, request.seed, request.truncation, lambda n: update(n, film.frames))
        return target
    total = len(sheet.which_B)
    images = gallery.render_sheet(
        sampler, sheet, request.seed, request.truncation, lambda n: update(n, total), request.mode
    )
    images.save(target, sheet.columns)
    return target


def _write_pictures(sampler: TensorSampler, path: Path, request: SampleRequest) -> Path:
    """Write a sheet of held-out samples, and of what G generates from their inputs."""
    from paragan.export.sampled_images import SampledImages

    maps = f"this generator makes {sampler.sample_name} from {' and '.join(sampler.inputs)}"
    _check_unused(request, maps)
    pictures, columns = sampler.held_out_pictures(request.num, request.seed, request.mode)
    return SampledImages(pictures).save(_target(sampler, path, request), columns)


def _check_unused(request: SampleRequest, makes: str) -> None:
    """Refuse the options that apply only to images from latents."""
    options: dict[str, Any] = {
        "--grid": request.grid,
        "--class": request.classes,
        "--classes": request.by_class,
        "--truncation": request.truncation,
        "--walk": request.walk,
        "--mix": request.mix,
    }
    for option, value in options.items():
        if value:
            raise ConfigError(f"{option} does not apply: {makes}; leave it out")


def _write_translated(sampler: Sampler, path: Path, request: SampleRequest, update: Update) -> Path:
    """Write a sheet of held-out inputs, outputs and targets."""
    from paragan.export import gallery

    count = request.num or min(_NUM_PAIRS, sampler.num_pairs)
    images, columns = gallery.render_pairs(sampler, count, request.seed, lambda done: update(done, count), request.mode)
    return images.save(_target(sampler, path, request), columns)


def _sheet(sampler: Sampler, request: SampleRequest) -> Sheet:
    from paragan.export import gallery

    rows, columns = request.shape or (None, gallery.COLUMNS)
    if request.by_class:
        return gallery.class_sheet(sampler, request.classes, rows, columns)
    num = request.num or (_NUM_IMAGES if request.walk is None else 1)
    return gallery.latent_sheet(
        sampler, num if rows is None else rows * columns, columns, request.classes, request.seed
    )


def _target(sampler: Sampler, path: Path, request: SampleRequest) -> Path:
    """Return the requested path, or one named after the options in samples/ or next to a file."""
    if request.out is not None:
        return request.out
    kind, ending = ("sample", ".png") if request.walk is None else ("walk", ".webp")
    seed = sampler.seed if request.seed is None else request.seed
    words = [kind, f"step-{sampler.info.step}", f"seed-{seed}", *request.name_words]
    name = file_name_word("-".join(words)) + ending
    return create_subfolder(path, "samples") / name if path.is_dir() else path.parent / name


def file_name_word(word: str) -> str:
    """Return the word as a name of a file or folder that any file system takes; a long one ends with its hash."""
    name = re.sub(r"[^\w.-]+", "_", word, flags=re.ASCII)
    if len(name) > _MAX_WORD:
        name = f"{name[:_MAX_WORD]}-{blake2b(word.encode('utf-8', 'surrogateescape'), digest_size=4).hexdigest()}"
    return name.strip(".") or "_"
