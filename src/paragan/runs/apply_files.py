"""A trained generator on files of a user: one output file for each input, of any size."""

import io
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from paragan.core.errors import ConfigError, DataError, is_out_of_memory
from paragan.core.printable import print_to_stderr
from paragan.core.source import AudioFormat
from paragan.datasets.base.audio_files import ENDINGS, File, read_info, read_part, require_packages
from paragan.datasets.base.file_readers import FileReader, FolderReader
from paragan.datasets.base.open_reader import open_reader
from paragan.datasets.base.whole_images import advising_a_user, decode_whole, has_frames
from paragan.export.application import Application
from paragan.export.sampled_images import SampledImages
from paragan.export.sampler import Sampler
from paragan.game.sampling import Mode
from paragan.runs.output_folder import OutputFiles, digest_of_weights, output_paths, prepare_output_folder
from paragan.writers.audio import to_wave

_RECORD = "applied.json"
_MAX_PEAK = 2.0  # of audio; what decodes lossy files, and resamples, exceeds 1 by less
_TOKENS = ".safetensors"
_WEIGHTS = "weights"  # in the metadata of tokens
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_ARCHIVES = (".zip", ".tar", ".tgz", ".gz", ".xz", ".bz2", ".zst")
Tokens = Literal["encode", "decode"]
Update = Callable[[float, int], None]  # files done, where a part of the next one counts as its share; and all files


@dataclass(frozen=True, kw_only=True)
class ApplyRequest:
    """Options of `paragan apply`; those of `Sampler.application` and of `Application`.

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
    """Result: number of files written, number that were there from an earlier call, messages of inputs that failed."""

    num_written: int = 0
    num_existing: int = 0
    damaged: list[str] = field(default_factory=list)


def apply_to_files(sampler: Sampler, source: Path, out: Path, request: ApplyRequest, update: Update) -> AppliedFiles:
    """Write `out/NAME` for every input NAME of a file, folder or archive, in the folders of the inputs.

    Images become .png, audio .wav, tokens .safetensors (int64 `tokens`, and `sizes` of the input). A stopped call
    continues when it is repeated; a file whose input changed is written again. An input that fails is named, and the
    others are not affected. update: receives the number of files done, and of all. Raises `ConfigError` if `out` holds
    files of another generator or of other options.
    """
    application = sampler.application(request.direction, request.seed, request.mode)
    if request.tokens is not None and not application.has_tokens:
        raise ConfigError("apply: this generator has no tokens; leave --encode and --decode out")
    application.check_tiles(request.tile, request.overlap)
    files, names = _list_inputs(application, source, request)
    if out.resolve().is_relative_to(source.resolve()):
        raise ConfigError(f"--out: '{out}' is in the folder of the inputs; pass another folder")
    prepare_output_folder(out, _RECORD, sampler, asdict(request))
    ending = ".png" if application.kind == "image" else ".wav"
    if request.tokens == "encode":
        ending = _TOKENS
    outputs = OutputFiles(out)
    weights = digest_of_weights(sampler) if request.tokens else ""
    applied = AppliedFiles()
    for done, (name, path) in enumerate(zip(names, output_paths(names, ending), strict=True), start=1):
        state = f"{files.stamp(name)} {name}"
        if outputs.has(path, state):
            applied.num_existing += 1
        else:
            with _collecting_errors(files.where(name), applied.damaged):
                with_progress = replace(application, progress=partial(_update_share, update, done - 1, len(names)))
                content = _output(with_progress, request, files, name, sampler.config.data.options, weights)
                outputs.write(path, content, state)
                applied.num_written += 1
        update(done, len(names))
    return applied


def _update_share(update: Update, done: int, total: int, share: float) -> None:
    """Report a share of the next file, by tiles; less than 1, as it is not written yet."""
    update(done + min(share, 0.99), total)


def _list_inputs(application: Application, source: Path, request: ApplyRequest) -> tuple[FileReader, list[str]]:
    if request.tokens == "decode":
        return _list_tokens(source)
    if source.is_file() and source.suffix.lower() not in _ARCHIVES:
        files: FileReader = FolderReader(source.parent)
        _prepare_files(application, files)
        return files, [source.name]
    files = open_reader(str(source), option="INPUT")
    _prepare_files(application, files)
    if not (names := files.find()):
        listed = ", ".join(f"{count:,} {kind}" for kind, count in files.ignored.items()) or "nothing"
        raise DataError(f"INPUT: no {application.kind} files in '{source}'; it has: {listed}")
    return files, [name.decode("utf-8", "surrogateescape") for name in names]


def _list_tokens(source: Path) -> tuple[FileReader, list[str]]:
    folder = source if source.is_dir() else source.parent
    paths = sorted(folder.rglob(f"*{_TOKENS}")) if source.is_dir() else [source]
    if not paths:
        raise DataError(f"INPUT: no {_TOKENS} files of tokens in '{source}'; pass what --encode wrote")
    return FolderReader(folder), [str(path.relative_to(folder)) for path in paths]


@contextmanager
def _collecting_errors(where: str, damaged: list[str]) -> Iterator[None]:
    """Add the message of an input that fails to `damaged`. where: the input."""
    try:
        yield
    except DataError as error:
        damaged.append(str(error))
    except ConfigError as error:  # of the size
        damaged.append(f"{where}: {error}")
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        damaged.append(f"{where}: it does not fit in memory; cut it into parts")


def _output(
    application: Application, request: ApplyRequest, files: FileReader, name: str, data_options: object, weights: str
) -> bytes:
    """Return the file that becomes of an input. data_options: of the training data. weights: digest of them."""
    where = files.where(name)
    if request.tokens == "decode":
        data = files.read(name)
        tokens, sizes = _read_tokens(data, where)
        if _weights_of(data) not in ("", weights):
            raise DataError(f"{where}: tokens of other weights; pass the checkpoint that encoded them")
        return _to_file(application, application.decode(tokens, sizes), where)
    x = _read_input(application, files, name, data_options)
    if request.tokens == "encode":
        tensors = {"tokens": application.encode(x)[0], "sizes": torch.tensor(x.shape[2:])}
        return safetensors.torch.save(tensors, {_WEIGHTS: weights})
    return _to_file(application, application(x, tile=request.tile, overlap=request.overlap), where)


def _read_tokens(data: bytes, where: str) -> tuple[Tensor, list[int]]:
    """Return the tokens (1, ...) of a file, and the sizes of what they stand for; `DataError` for another file."""
    try:
        stored = safetensors.torch.load(data)
        tokens = stored["tokens"]
        sizes = stored["sizes"].tolist()
    except (SafetensorError, KeyError):
        raise DataError(f"{where}: no `tokens` and `sizes` in safetensors; pass a file that --encode wrote") from None
    are_sizes = isinstance(sizes, list) and sizes and all(type(size) is int and size > 0 for size in sizes)
    if not are_sizes or tokens.dtype not in _INTEGERS or not tokens.numel():
        raise DataError(
            f"{where}: tokens of {tokens.dtype} {tuple(tokens.shape)} and sizes {str(sizes)[:60]} are none of a file; "
            "pass one that --encode wrote"
        )
    return tokens.long()[None], sizes


def _weights_of(data: bytes) -> str:
    """Return what a valid file of tokens says about the weights that made them; empty: nothing."""
    length = int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8 : 8 + length]).get("__metadata__") or {}  # null is none
    return str(metadata.get(_WEIGHTS, ""))


def apply_to_content(application: Application, data: bytes, where: str, data_options: object, max_size: int) -> bytes:
    """Return the file that `apply_to_files` writes for the content of one.

    where: its name in messages. data_options: of the training data.  max_size: of the output, and of audio that
    is read, in pixels or values. Raises `DataError` for a damaged file or a larger one, `ConfigError` for its size.
    """
    if application.audio is None:
        x = decode_whole(data, where, application.channels, data_options)[None]
    else:
        x = _read_audio(io.BytesIO(data), where, application.audio, max_size)
    if x[0, 0].numel() * application.scale ** (x.dim() - 2) > max_size:
        raise DataError(f"{where}: its output is larger than {max_size:,} pixels or samples; make the input smaller")
    return _to_file(application, application(x), where)


def check_packages(application: Application) -> None:
    """Raise `ConfigError` where audio, if the generator takes it, cannot be read or written."""
    if application.kind == "image":
        return
    require_packages()
    if application.audio is None:
        raise ConfigError("apply: the sample rate of this run's audio is not known; call paragan.load(RUN).apply(x)")


def _prepare_files(application: Application, files: FileReader) -> None:
    """Let a reader list audio, if the generator takes it."""
    check_packages(application)
    files.endings = ENDINGS if application.kind == "audio" else ()


def _read_input(application: Application, files: FileReader, name: str, data_options: object) -> Tensor:
    """Return an image (1, C, H, W), or audio (1, C, T) at the rate of training; `DataError` for a damaged file."""
    where = files.where(name)
    if application.audio is None:
        data = files.read(name)
        x = decode_whole(data, where, application.channels, data_options)[None]
        if has_frames(data):
            print_to_stderr(f"warning: {where}: the first of several frames is read")
        return x
    # what is not in an archive is read in parts, by its path, which may be no UTF-8
    file: File = os.fsencode(where) if isinstance(files, FolderReader) else io.BytesIO(files.read(name))
    return _read_audio(file, where, application.audio)


@advising_a_user()
def _read_audio(file: File, where: str, audio: AudioFormat, max_size: float = math.inf) -> Tensor:
    """Return audio (1, C, T) in a format; `DataError` if it is damaged, or has more values than `max_size`."""
    info = read_info(file, where)
    rate = audio.sample_rate
    channels = audio.channels
    if max(info.num_samples * info.channels, info.length_at(rate) * channels) > max_size:  # of a small file
        raise DataError(f"{where}: more than {max_size:,} samples; cut it into parts")
    audio_CT = read_part(file, info, where, start=0, count=info.length_at(rate), sample_rate=rate, channels=channels)
    if (peak := np.abs(audio_CT).max(initial=0)) > _MAX_PEAK:
        raise DataError(f"{where}: a value of {peak:.3g}, but audio is in [-1, 1]; scale it")
    return torch.from_numpy(audio_CT)[None]


def _to_file(application: Application, output: Tensor, where: str) -> bytes:
    """Return an output (1, C, ...) as a PNG or WAV file. Raises `DataError` for NaN and infinity. where: the input."""
    if not all(value.isfinite() for value in output.aminmax()):
        raise DataError(f"{where}: the generator makes values of it that are not finite; use another checkpoint")
    if application.audio is not None:
        return to_wave(output[0], application.audio.sample_rate)
    content = io.BytesIO()
    SampledImages(output)[0].save(content, "PNG")
    return content.getvalue()
