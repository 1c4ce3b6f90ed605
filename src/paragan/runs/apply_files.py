"""A trained generator on files of a user: one output file for each input, of any size."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal

import numpy as np
import torch
from torch import Tensor

from paragan.core.errors import ConfigError, DataError
from paragan.core.files import atomic_write, check_no_link, read_bytes, write_text
from paragan.datasets.base.file_readers import FileReader, FolderReader, list_images
from paragan.datasets.base.whole_images import decode_whole
from paragan.export.application import Application, find_application
from paragan.export.sampled_images import SampledImages
from paragan.export.sampler import Sampler
from paragan.game.sampling import Mode
from paragan.storage import npz

_RECORD = "applied.json"
_MAX_RECORD_BYTES = 1 << 16
_TOKENS = ".npz"
Tokens = Literal["encode", "decode"]
Update = Callable[[int, int], None]  # (number done, total)


@dataclass(frozen=True, kw_only=True)
class ApplyRequest:
    """Options of `paragan apply`; those of `find_application` and `Application`.

    tokens: write the tokens of a codec or VQGAN instead of its output, or read them.
    """

    direction: str | None = None
    tokens: Tokens | None = None
    tile: int | None = None
    overlap: int | None = None
    seed: int | None = None
    mode: Mode | None = None

    def __post_init__(self) -> None:
        """Raise `ConfigError` for options that do not fit together."""
        if self.tokens and (self.tile is not None or self.overlap is not None):
            raise ConfigError(
                "--tile and --overlap do not apply to tokens, which are those of whole files; leave them out"
            )


@dataclass(kw_only=True)
class AppliedFiles:
    """Result: number of files written, number that were there from an earlier call, messages of damaged inputs."""

    num_written: int = 0
    num_existing: int = 0
    damaged: list[str] = field(default_factory=list)


def apply_to_files(sampler: Sampler, source: Path, out: Path, request: ApplyRequest, update: Update) -> AppliedFiles:
    """Write `out/NAME` for every input NAME of a file, folder or archive, in the folders of the inputs.

    Images become .png, audio .wav, tokens .npz (int64 `tokens`, and `sizes` of the input). A stopped call continues
    when it is repeated. update: receives the number of files done, and of all. Raises `ConfigError` if `out` holds
    files of another generator or of other options.
    """
    application = find_application(sampler, request.direction, request.seed, request.mode)
    files, names = _list_inputs(source, application, request)
    _prepare_folder(out, source, sampler, request)
    write = _writer(application, request, files, _background(sampler))
    ending = _TOKENS if request.tokens == "encode" else ".png" if application.kind == "image" else ".wav"
    applied = AppliedFiles()
    for done, (name, target) in enumerate(zip(names, _targets(names, out, ending), strict=True), start=1):
        if target.exists():
            applied.num_existing += 1
        else:
            try:
                write(name, target)
                applied.num_written += 1
            except DataError as error:
                applied.damaged.append(str(error))
        update(done, len(names))
    return applied


def _list_inputs(source: Path, application: Application, request: ApplyRequest) -> tuple[FileReader, list[str]]:
    if request.tokens == "decode":
        folder = source if source.is_dir() else source.parent
        paths = sorted(folder.rglob(f"*{_TOKENS}")) if source.is_dir() else [source]
        if not paths:
            raise DataError(f"INPUT: no {_TOKENS} files of tokens in '{source}'; pass what --encode wrote")
        return FolderReader(folder), [str(path.relative_to(folder)) for path in paths]
    if source.is_file() and source.suffix.lower() not in (".zip", ".tar", ".gz", ".tgz"):
        return FolderReader(source.parent), [source.name]
    files, names = list_images(str(source), option="INPUT", min_images=1)
    return files, [name.decode("utf-8", "surrogateescape") for name in names]


def _targets(names: Sequence[str], out: Path, ending: str) -> list[Path]:
    """Return the file of each input; two that differ only in their endings keep them."""
    counts = Counter(PurePosixPath(name).with_suffix(ending) for name in names)
    targets = []
    for name in names:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise DataError(f"INPUT: {name!r} leads out of its folder; remove it from the archive")
        own = path.with_suffix(ending)
        targets.append(out / (own if counts[own] == 1 else path.with_name(path.name + ending)))
    return targets


def _prepare_folder(out: Path, source: Path, sampler: Sampler, request: ApplyRequest) -> None:
    """Create the folder with a record of what its files are made by; refuse one with others."""
    check_no_link(out)
    if out.resolve().is_relative_to(source.resolve()):
        raise ConfigError(f"--out: '{out}' is in the folder of the inputs; pass another folder")
    record = json.dumps({"weights": _digest(sampler), **asdict(request)}, sort_keys=True)
    if out.is_dir() and any(out.iterdir()):
        try:
            recorded = read_bytes(out / _RECORD, _MAX_RECORD_BYTES).decode()
        except (OSError, UnicodeDecodeError):
            raise ConfigError(f"--out: '{out}' holds other files; pass a new or empty folder") from None
        if recorded != record:
            raise ConfigError(
                f"--out: '{out}' holds results of another checkpoint or of other options; pass a new or empty folder"
            )
        return
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / _RECORD, record)


def _digest(sampler: Sampler) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, value in sorted(sampler.net.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _background(sampler: Sampler) -> int:
    return int(getattr(sampler.config.data.options, "background", 255))


def _writer(
    application: Application, request: ApplyRequest, files: FileReader, background: int
) -> Callable[[str, Path], None]:
    """Return a function that reads an input and writes its output."""

    def read(name: str) -> Tensor:
        return decode_whole(files.read(name), files.where(name), application.channels, background)[None]

    def write(name: str, target: Path) -> None:
        if request.tokens == "decode":
            y = application.decode(*_read_tokens(Path(files.where(name))))
        elif request.tokens == "encode":
            x = read(name)
            tokens, sizes = application.encode(x)[0].numpy(), np.array(x.shape[2:])
            return _save(target, lambda file: np.savez_compressed(file, tokens=tokens, sizes=sizes))
        else:
            y = application(read(name), tile=request.tile, overlap=request.overlap)
        image = SampledImages(y)[0]
        return _save(target, lambda file: image.save(file, "PNG"))

    return write


def _save(target: Path, write: Callable[[BinaryIO], Any]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(target) as file:
        write(file)


def _read_tokens(path: Path) -> tuple[Tensor, list[int]]:
    tokens, sizes = npz.read_array(path, "tokens"), npz.read_array(path, "sizes")
    if tokens.dtype.kind not in "iu" or sizes.dtype.kind not in "iu" or sizes.ndim != 1 or tokens.size == 0:
        raise DataError(f"{path}: no integers `tokens` and `sizes`; pass a file that --encode wrote")
    return torch.from_numpy(tokens.astype(np.int64))[None], sizes.tolist()
