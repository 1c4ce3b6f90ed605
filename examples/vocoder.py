"""Sound from a spectrogram, in the manner of HiFi-GAN (Kong et al. 2020): 1-D, and several discriminators at once.

The generator turns frames of a coarse spectrogram and a sine at the pitch into a waveform. Four discriminators fold it
by a period or read it at half rate. Their inner features, real against fake, are one term of G's loss; the distance of
the spectrograms is another.

    python examples/vocoder.py

Trains about half a minute on one CPU core, in runs/vocoder, then prints the error of its spectrograms on new chirps.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

import paragan as pg

LENGTH, HOP, WINDOW, BANDS, BATCH = 512, 16, 64, 16, 8
FOLDS = {"by_2": (2, 1), "by_3": (3, 1), "by_1": (1, 1), "at_half": (1, 2)}  # (period, samples averaged)


def spectrogram(wave):
    """Log energy in bands: (B, BANDS, LENGTH / HOP)."""
    window = torch.hann_window(WINDOW, dtype=wave.dtype)
    spectrum = torch.stft(wave[:, 0], WINDOW, HOP, window=window, return_complex=True)
    return (F.adaptive_avg_pool1d(spectrum.abs()[..., :-1].transpose(1, 2), BANDS) + 0.05).log().transpose(1, 2)


def chirps(num, seed):
    """Gliding tones (num, 1, LENGTH); their frames (num, BANDS + HOP, LENGTH / HOP): spectrogram, and sine at pitch."""
    start, end, phase, low, high = torch.rand(5, num, 1, generator=torch.Generator().manual_seed(seed))
    pitch = 0.02 * 5 ** torch.lerp(start, end, torch.linspace(0, 1, LENGTH))
    turn = 2 * torch.pi * (phase + pitch.cumsum(1))
    wave = (0.2 + 0.4 * low) * turn.sin() + 0.2 * high * (2 * turn).sin()
    sine = turn.sin().unflatten(1, (-1, HOP)).transpose(1, 2)
    return {"audio": wave[:, None], "frames": torch.cat([spectrogram(wave[:, None]), sine], 1)}


class Vocoder(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        up = (nn.ConvTranspose1d(a, b, 8, 4, 2) for a, b in ((width, width), (width, width // 2)))  # 4 samples for 1
        first, last = nn.Conv1d(BANDS + HOP, width, 7, padding=3), nn.Conv1d(width // 2, 1, 7, padding=3)
        self.layers = nn.Sequential(first, *(nn.Sequential(nn.LeakyReLU(0.1), layer) for layer in (*up, last)))

    def forward(self, frames):
        return self.layers(frames).tanh()


class Ear(nn.Module):
    """Folds the wave by its period to (B, 1, T / period, period), after averaging some samples."""

    def __init__(self, period, averaged, width=8):
        super().__init__()
        sizes = ((1, width, 3), (width, 2 * width, 3), (2 * width, 2 * width, 3), (2 * width, 1, 1))
        self.period, self.averaged = period, averaged
        self.layers = nn.ModuleList(nn.Conv2d(a, b, (5, 1), (stride, 1), (2, 0)) for a, b, stride in sizes)

    def forward(self, audio):
        h = F.avg_pool1d(audio, self.averaged)
        h = F.pad(h, (0, -h.shape[2] % self.period)).unflatten(2, (-1, self.period))
        features = []
        for layer in self.layers[:-1]:
            h = F.leaky_relu(layer(h), 0.1)
            features.append(h)
        return self.layers[-1](h).flatten(1), features


def spectral_distance(outputs, inputs):
    return (spectrogram(outputs.images) - inputs.tensors["frames"][:, :BANDS]).abs()


def trainer(steps=400, seed=0, out="runs/vocoder", settings=None, dtype=torch.float32):
    torch.manual_seed(seed)
    ears = {name: Ear(*fold).to(dtype) for name, fold in FOLDS.items()}
    data = {name: tensor.to(dtype) for name, tensor in chirps(4000, seed).items()}
    matching = pg.FeatureMatchingL1Penalty(pg.FeatureMatchingL1Options(weight=2.0))
    adam = {"lr": 3e-3, "arguments": {"betas": [0.5, 0.99]}}
    chosen = {"train.batch": BATCH, "train.kimg": steps * BATCH / 1000, "g.optimizer": adam, "d.optimizer": adam}
    return pg.Trainer(
        Vocoder().to(dtype), ears, data, loss="least_squares", out=out, settings={**chosen, **(settings or {})},
        terms=[matching, pg.Term(name="spectral", function=spectral_distance, weight=5.0)],
    )  # fmt: skip


if __name__ == "__main__":
    run = trainer(*map(int, sys.argv[1:])).run()
    new = chirps(200, seed=1)
    made = run.generator(new["frames"])
    print("missed by", (spectrogram(new["audio"]) - spectrogram(made)).abs().mean().item(), "nepers")
