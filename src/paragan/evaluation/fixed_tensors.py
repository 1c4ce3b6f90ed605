"""Sample sheets of tensors as pictures: samples of the data, and what G makes of their inputs."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from paragan.core.phases import Phase, phase
from paragan.core.source import Source
from paragan.core.types import Batch, Rows
from paragan.evaluation.fixed_samples import SampleSheet, fetch_batch
from paragan.game.network import CalledNetwork
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.sampling import Mode, generate_tensors, sampling_network

NAMES = ("data", "generated")
_COLUMNS = 8
_POINTS = 1024
_PIXELS = 64  # of a density
_MAX_COLUMNS = 4096
_MAX_PICTURED = 64  # columns
_COLUMN_PIXELS = 6  # of a distribution
_WINDOW = 128
_RANGE = 9.2  # nepers of a spectrogram: 80 dB


@dataclass(frozen=True)
class FixedTensors:
    """Sheets of the first samples of `source`, of G's inputs that are images, and of what G generates.

    Images are shown unchanged, waves (1 or 2, T) as spectrograms, two columns as their density, and other
    numbers of columns as the distribution of each, up to 64; of complex numbers the absolute values.
    """

    source: Source
    mode: Mode = "eval"
    held_out: Source | None = None

    @phase(Phase.EVALUATION)
    def __call__(self, player: Player, prior: Prior, class_names: tuple[str, ...]) -> SampleSheet:
        """Return the sheet: G's inputs that are images, the data, and the generated samples."""
        return self.sheet(sampling_network(player, self.source.argument), prior)

    def sheet(self, generator: CalledNetwork, prior: Prior, columns: int | None = None) -> SampleSheet:
        """Return the sheet of the first samples. columns: number of samples; None: 8."""
        is_density = len(self.source.tensors[prior.sample_name].shape) == 1
        count = _POINTS if is_density else columns or _COLUMNS
        count = min(count, len(self.source) or count)
        batch = fetch_batch(self.source, Rows(step=0, first=0, count=count, total=count), prior)
        feed = prior.feed("grid", batch)
        generated = generate_tensors(generator, feed.fake_inputs, self.mode, seed=prior.seed).images
        real, generated = (x.abs() if x.is_complex() else x for x in (feed.real_sample, generated))
        inputs = _image_inputs(batch, prior, real)
        pictures = as_pictures(torch.cat([*inputs.values(), real, generated.to(real.dtype)]))
        tensors = {} if real.dim() == 4 else dict(zip(NAMES, (real, generated), strict=True))
        values = {}
        if is_density:
            from paragan.evaluation.column_statistics import row_statistics

            names = self.source.column_names.get(prior.sample_name, ())
            values["row_statistics"] = row_statistics(real, generated, names)
        return SampleSheet(
            images=pictures, columns=1 if is_density else count, rows=(*inputs, *NAMES), tensors=tensors, values=values
        )


def _image_inputs(batch: Batch, prior: Prior, real: Tensor) -> dict[str, Tensor]:
    """Return G's inputs that are images, by name, each enlarged to the size of the sample."""
    if real.dim() != 4:
        return {}
    names = [name for name in prior.generator_arguments or () if name not in ("latent", prior.sample_name)]
    inputs = {name: batch.tensors[name] for name in names}
    images = {name: x for name, x in inputs.items() if x.dim() == 4 and x.shape[1] == real.shape[1]}
    return {name: F.interpolate(x.to(real.dtype), real.shape[2:]) for name, x in images.items()}


def is_pictured(shape: tuple[int, ...]) -> bool:
    """Return whether samples of this shape have pictures: (1 or 3, H, W), (1 or 2, T), or up to 4,096 columns."""
    if len(shape) == 3:
        return shape[0] in (1, 3) and -1 not in shape
    if len(shape) == 1:
        return 0 < shape[0] <= _MAX_COLUMNS
    return len(shape) == 2 and shape[0] in (1, 2) and (shape[1] == -1 or shape[1] >= _WINDOW)


def as_pictures(x_B: Tensor) -> Tensor:
    """Return pictures (B, C, H, W) in [-1, 1] of samples; of columns one of each half (2, 1, H, W)."""
    x_B = x_B.detach().float()
    if x_B.dim() == 4:
        return x_B.clamp(-1, 1)
    if x_B.dim() == 2:
        picture = _density if x_B.shape[1] == 2 else _distribution
        real, generated = x_B[:, :_MAX_PICTURED].cpu().chunk(2)
        return torch.stack([picture(rows, real) for rows in (real, generated)])
    wave_BT = x_B.mean(1)
    hop = max(1, wave_BT.shape[1] // _WINDOW)
    window = torch.hann_window(_WINDOW, device=x_B.device)
    spectrum = torch.stft(wave_BT, _WINDOW, hop, window=window, pad_mode="constant", return_complex=True).abs()
    loudest = spectrum.amax().clamp(min=1e-6)
    level = (spectrum / loudest).clamp(min=1e-6).log() / _RANGE  # 0 is the loudest, -1 is silent
    return (2 * level + 1).clamp(-1, 1).flip(1)[:, None]


def _density(points_N2: Tensor, real_N2: Tensor) -> Tensor:
    """Return a histogram over the range of the real points, whiter where points are."""
    places = _pixels(points_N2, real_N2)
    counts = torch.bincount((_PIXELS - 1 - places[:, 1]) * _PIXELS + places[:, 0], minlength=_PIXELS**2).float()
    return (2 * (counts / counts.amax()).sqrt() - 1).view(1, _PIXELS, _PIXELS)


def _distribution(rows_NK: Tensor, real_NK: Tensor) -> Tensor:
    """Return a picture with a bar per column over the range of the real values, whiter where values are."""
    columns = torch.arange(real_NK.shape[1])
    places = _pixels(rows_NK, real_NK)
    counts = torch.zeros(_PIXELS, len(columns))
    counts.index_put_((_PIXELS - 1 - places, columns.expand_as(places)), torch.ones(()), accumulate=True)
    levels = 2 * (counts / counts.amax(0)).sqrt() - 1
    return levels.repeat_interleave(_COLUMN_PIXELS, 1)[None]


def _pixels(values_NK: Tensor, real_NK: Tensor) -> Tensor:
    """Return the pixel of each value, whole numbers, over the range of the real ones in its column."""
    low = real_NK.amin(0)
    size = (real_NK.amax(0) - low).clamp(min=1e-6)
    return (((values_NK - low) / size * 0.8 + 0.1) * _PIXELS).floor().nan_to_num().clamp(0, _PIXELS - 1).long()
