"""Sound from a spectrogram, in the manner of HiFi-GAN (Kong et al. 2020): 1-D, and several discriminators at once.

The generator turns frames of a coarse spectrogram and a sine at the pitch (the condition) into a waveform. Four
discriminators in one module fold it by a period or read it at half rate; the game averages their logits. Their inner
features, real against fake, are one term of G's loss; the distance of the spectrograms is another.

    python examples/vocoder.py

Trains well under a minute on one CPU core, then prints the error of its spectrograms on new chirps.
"""

import torch
import torch.nn.functional as F
from torch import nn

import paragan as pg
from paragan.losses import least_squares
from paragan.schemes import synchronous

LENGTH, HOP, WINDOW, BANDS, BATCH = 512, 16, 64, 16, 8


def spectrogram(wave):
    """Log energy in bands: (B, BANDS, LENGTH / HOP)."""
    spectrum = torch.stft(wave[:, 0], WINDOW, HOP, window=torch.hann_window(WINDOW), return_complex=True)
    return (F.adaptive_avg_pool1d(spectrum.abs()[..., :-1].transpose(1, 2), BANDS) + 0.05).log().transpose(1, 2)


def chirps(num, draws):
    """Gliding tones (num, 1, LENGTH); their frames (num, BANDS + HOP, LENGTH / HOP): spectrogram, and sine at pitch."""
    start, end, phase, low, high = torch.rand(5, num, 1, generator=draws)
    pitch = 0.02 * 5 ** torch.lerp(start, end, torch.linspace(0, 1, LENGTH))
    turn = 2 * torch.pi * (phase + pitch.cumsum(1))
    wave = (0.2 + 0.4 * low) * turn.sin() + 0.2 * high * (2 * turn).sin()
    sine = turn.sin().unflatten(1, (-1, HOP)).transpose(1, 2)
    return wave[:, None], torch.cat([spectrogram(wave[:, None]), sine], 1)


class Vocoder(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        up = (nn.ConvTranspose1d(a, b, 8, 4, 2) for a, b in ((width, width), (width, width // 2)))  # 4 samples for 1
        first, last = nn.Conv1d(BANDS + HOP, width, 7, padding=3), nn.Conv1d(width // 2, 1, 7, padding=3)
        self.layers = nn.Sequential(first, *(nn.Sequential(nn.LeakyReLU(0.1), layer) for layer in (*up, last)))

    def forward(self, z, frames):
        return self.layers(frames).tanh()


class Discriminators(nn.Module):
    """Each folds the wave by its period to (B, 1, T / period, period), after averaging some samples."""

    folds = ((2, 1), (3, 1), (1, 1), (1, 2))  # (period, samples averaged)

    def __init__(self, width=8):
        super().__init__()
        sizes = ((1, width, 3), (width, 2 * width, 3), (2 * width, 2 * width, 3), (2 * width, 1, 1))
        ears = ([nn.Conv2d(a, b, (5, 1), (stride, 1), (2, 0)) for a, b, stride in sizes] for _ in self.folds)
        self.ears = nn.ModuleList(map(nn.ModuleList, ears))

    def forward(self, wave, frames):
        logits, features = [], []
        for (period, averaged), ear in zip(self.folds, self.ears, strict=True):
            h = F.avg_pool1d(wave, averaged)
            h = F.pad(h, (0, -h.shape[2] % period)).unflatten(2, (-1, period))
            for layer in ear[:-1]:
                h = F.leaky_relu(layer(h), 0.1)
                features.append(h.flatten(1))
            logits.append(ear[-1](h).flatten(1))
        return pg.DiscriminatorOutput(torch.cat(logits, 1), torch.cat(features, 1))


def main(steps=400, seed=0):
    """Train; returns new chirps and the vocoder's output for their spectrograms."""
    torch.manual_seed(seed)
    draws = torch.Generator().manual_seed(seed)
    adam = pg.Policy(lr=3e-3, arguments={"betas": (0.5, 0.99)})
    matching = pg.Term("features", lambda o, _: (o.fake.features - o.real.features).abs(), 2.0)
    spectral = pg.Term("spectral", lambda o, i: (spectrogram(o.images) - i.tensors["frames"][:, :BANDS]).abs(), 5.0)
    gan = pg.GAN(
        pg.Player(pg.Side.G, Vocoder(), policy=adam),
        pg.Player(pg.Side.D, Discriminators(), policy=adam),
        pg.Loss(least_squares.d_loss, least_squares.g_loss, g_needs_real=True),  # for the features
        pg.Prior(seed, latent=0, arguments=("audio", "frames")),  # no noise
        g_penalties=(matching, spectral),
    )
    for step in range(steps):
        wave, frames = chirps(BATCH, draws)
        batch = pg.Batch(pg.Rows(step, 0, BATCH, BATCH), {"audio": wave, "frames": frames})
        report = synchronous.step(gan, iter([batch]))
        if step % 100 == 0:
            print(step, report.read())
    wave, frames = chirps(200, draws)
    with torch.no_grad():
        return wave, gan.g.net(None, frames)


if __name__ == "__main__":
    real, made = main()
    print("missed by", (spectrogram(real) - spectrogram(made)).abs().mean().item(), "nepers")
