"""Settings that several data sets share. This module does not import torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Literal

from paragan.core.addresses import secret_in_url as secret_in_url  # the registry knows names of this file alone
from paragan.core.option_types import Count, FilePath, ImageSize, Interval, MelScale, NotNegative, Positive


@dataclass(frozen=True)
class IdxOptions:
    """Location of the files and size of the images."""

    path: FilePath = ""
    """Folder of the four idx files, gzipped or plain. If empty, they are downloaded once."""
    size: Literal[28, 32] = 28
    """Height and width in pixels: 28, or 32 with a black border of two pixels."""


@dataclass(frozen=True, kw_only=True)
class PixelOptions:
    """How images become pixels."""

    channels: Annotated[int, Interval(ge=1, le=16)] = 3
    """Channels: 1 for grey, 3 for colour, 4 with alpha; others are the first bands of TIFF files."""
    bits: Literal[8, 16] = 8
    """Depth to which pixels are rounded: 16 keeps that of PNG, TIFF and grey images."""
    range: tuple[float, float] | None = None
    """Stored values that become the darkest and the brightest; null: 0 and the highest of 8 or 16 bits."""
    crop: Literal["center", "squash", "random", "none"] = "center"
    """Part of an image: `center` crops the largest part of this shape, `squash` changes the aspect ratio.

    `random` crops at the original resolution, drawn for each training image, the centre of held-out ones;
    `none` takes images of this size alone.
    """
    background: Annotated[int, Interval(ge=0, le=255)] = 255
    """Grey level, 0 to 255, behind transparent pixels."""
    resize: Literal["lanczos", "bicubic"] = "lanczos"
    """Filter for resizing: Pillow's `lanczos`, or `bicubic` of torch: faster, a little less sharp."""
    flip: bool = False  # `build.data` reads it
    """Mirror half of the training images, chosen at random in every epoch."""

    def __post_init__(self) -> None:
        check_range(self.range)


def check_range(limits: tuple[float, float] | None) -> None:
    """Raise `ValueError` for a range of values that is none."""
    if limits is not None and not -math.inf < limits[0] < limits[1] < math.inf:
        raise ValueError("range must be two finite numbers, the lower first, such as [-1024, 3071]")


@dataclass(frozen=True, kw_only=True)
class FolderOptions(PixelOptions):
    """Images of a path, searched recursively. Sub-folders are the classes, or files have the labels."""

    path: FilePath = ""
    """A folder, archive (zip; tar, plain or compressed), folder of tar files, Parquet, Hugging Face's, or shards."""
    size: ImageSize = 64
    """Size in pixels to which images are resized: a number for squares, or HEIGHTxWIDTH."""
    classes: Literal["folders", "none"] | None = None
    """Whether sub-folders are classes: `folders` or `none`; null: by their names, and labels in files come first."""
    labels: bool | FilePath = field(default=True, repr=False)
    """Labels of the data; false: none, the run is unconditional. FILE.csv (or .json): names of files and labels."""
    held_out: Annotated[float, Interval(gt=0, le=0.5)] = 0.1
    """Share of the images held out from training, if the data has no folders `train` and `val`."""
    damaged: Literal["stop", "skip"] = "stop"
    """Handling of damaged images: `stop` the run when one is loaded, or `skip` them.

    `skip` decodes all images once before training.
    """


@dataclass(frozen=True, kw_only=True)
class AudioOptions:
    """A folder or .zip file of audio, searched recursively, and the mel spectrograms of its segments.

    The penalty and the metrics on spectrograms, the models and the writer of audio follow these settings.
    """

    path: FilePath = ""
    """The folder or .zip file: wav, flac, ogg, mp3 and what else libsndfile reads; other formats by ffmpeg."""
    sample_rate: Annotated[int, Interval(ge=1000, le=192_000)] = 8000
    """Samples per second; files of other rates are resampled."""
    segment: Annotated[int, Interval(ge=256, le=1 << 22)] = 4096
    """Samples of a segment, a multiple of `hop`; shorter files are padded with silence."""
    channels: Literal[1, 2] = 1
    """Channels: 1, the mean of those of a file; 2, stereo."""
    held_out: Annotated[float, Interval(gt=0, le=0.5)] = 0.1
    """Share of the files held out from training, if the data has no folders `train` and `val`."""
    damaged: Literal["stop", "skip"] = "stop"
    """Handling of damaged files: `stop` the run at the first one, or `skip` them.

    `skip` reads all files once before training.
    """
    n_fft: Count = 256
    """Samples of a frame of the spectrogram; HiFi-GAN: 1024."""
    hop: Count = 64
    """Samples from frame to frame; HiFi-GAN: 256."""
    win: Count | None = None
    """Samples of the Hann window in a frame; null: n_fft."""
    n_mels: Count = 40
    """Mel bands; HiFi-GAN: 80."""
    fmin: NotNegative = 0.0
    """Lowest frequency of the bands in Hz."""
    fmax: Positive | None = None
    """Highest frequency of the bands in Hz; null: half of the sample rate. HiFi-GAN: 8000."""
    mel_scale: MelScale = "slaney"
    """Formula of the mel scale; filters have equal areas in both."""

    def __post_init__(self) -> None:
        if self.segment % self.hop:
            raise ValueError(f"segment must be a multiple of hop={self.hop}, not {self.segment}")
        if not self.hop <= self.n_fft <= self.segment:
            raise ValueError(f"n_fft must be from hop={self.hop} to segment={self.segment}, not {self.n_fft}")
        if not (self.win or self.n_fft) <= self.n_fft:
            raise ValueError(f"win must be at most n_fft={self.n_fft}, not {self.win}")
        if not self.fmin < (self.fmax or self.sample_rate / 2) <= self.sample_rate / 2:
            raise ValueError(
                f"fmax must be from fmin={self.fmin:g} to half of sample_rate={self.sample_rate}, not {self.fmax}"
            )
