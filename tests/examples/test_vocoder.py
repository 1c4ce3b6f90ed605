"""The vocoder's sound has the requested spectrogram, at the right pitch; a killed run is an uninterrupted one."""

import copy
import random

import pytest
import torch
from torch.nn.functional import l1_loss, mse_loss

import paragan as pg
from tests.examples.stopped_runs import Killed, assert_equal_runs, killed_at, tensors_of

STEPS = 12
KILLED_AT = sorted(random.Random(20261123).sample(range(2, STEPS), 3))
EPS = 1e-4  # Adam would magnify the rounding of gradients that are 0
PLAIN = {
    "g.optimizer.arguments.eps": EPS, "d.optimizer.arguments.eps": EPS, "g.precision": "fp32", "d.precision": "fp32",
    "every.save_kimg": 0.016, "every.log_steps": 1, "train.batch": 4, "train.kimg": STEPS * 4 / 1000,
}  # fmt: skip


@pytest.fixture(scope="module")
def vocoder(example):
    return example("vocoder")


@pytest.fixture(scope="module")
def sounds(vocoder, tmp_path_factory):
    run = vocoder.trainer(200, out=tmp_path_factory.mktemp("vocoder")).run()
    new = vocoder.chirps(200, seed=1)
    return new["audio"], run.generator(new["frames"])


def peaks(waves):
    """The loudest of 65 frequencies in each of seven frames."""
    spectrum = torch.stft(waves[:, 0], 128, 64, window=torch.hann_window(128), return_complex=True)
    return spectrum[..., 1:-1].abs().argmax(1)


@pytest.mark.slow
def test_vocoder_matches_spectrograms_of_new_sounds(vocoder, sounds):
    real, made = map(vocoder.spectrogram, sounds)
    missed, spread = (real - made).abs().mean(), (real - real.mean(0)).abs().mean()
    assert missed < 0.75 * spread


@pytest.mark.slow
def test_vocoder_pitch_is_right(sounds):
    real, made = map(peaks, sounds)
    assert ((real - made).abs() <= 1).float().mean() > 0.8


def step_of(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def plain_loop(vocoder, made, steps):
    """HiFi-GAN's step in the plainest code: sum over discriminators of means, features layer by layer."""
    g, ears = copy.deepcopy((made.generator, list(made.discriminator.values())))
    adam = {"lr": 3e-3, "betas": (0.5, 0.99), "eps": EPS}
    of_g = torch.optim.Adam(g.parameters(), **adam)
    of_d = torch.optim.Adam([weight for ear in ears for weight in ear.parameters()], **adam)
    for _, batch in zip(range(steps), pg.loading.TensorBatches(made.source, 4), strict=False):
        audio, frames = batch["audio"], batch["frames"]
        made_audio = g(frames).detach()
        loss = 0
        for ear in ears:
            loss = loss + ((ear(audio)[0] - 1) ** 2).mean() / 2 + (ear(made_audio)[0] ** 2).mean() / 2
        step_of(of_d, loss)
        made_audio = g(frames)
        loss = 5 * l1_loss(vocoder.spectrogram(made_audio), frames[:, : vocoder.BANDS])
        for ear in ears:
            (logits, fake), (_, real) = ear(made_audio), ear(audio)
            loss = loss + mse_loss(logits, torch.ones_like(logits)) / 2
            loss = loss + 2 * sum(l1_loss(a, b.detach()) for a, b in zip(fake, real, strict=True))
        step_of(of_g, loss)
    return g, ears


@pytest.fixture(scope="module")
def straight(vocoder, tmp_path_factory):
    """An uninterrupted run in float64, which is only read."""
    made = vocoder.trainer(out=tmp_path_factory.mktemp("straight"), settings=PLAIN, dtype=torch.float64)
    return made, made.run()


def test_vocoder_equals_the_plain_loop(vocoder, straight):
    made, run = straight
    g, ears = plain_loop(vocoder, made, STEPS)
    found = tensors_of(run.folder)
    expected = {f"g/net/{name}": value for name, value in g.state_dict().items()}
    for name, ear in zip(vocoder.FOLDS, ears, strict=True):
        expected |= {f"d/net/{name}.{key}": value for key, value in ear.state_dict().items()}
    assert expected.keys() == {name for name in found if "/net/" in name}
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-12)
    assert {"g/loss/spectral", "g/loss/feature_matching_l1", "d/real/at_half"} <= set(run.history[-1])


@pytest.mark.slow
def test_vocoder_interrupted_at_three_steps_equals_the_uninterrupted_run(vocoder, straight, tmp_path):
    for position in KILLED_AT:
        made = vocoder.trainer(out=tmp_path, settings=PLAIN, dtype=torch.float64)
        with pytest.raises(Killed):
            killed_at(made, position, batch=4).run()
    again = vocoder.trainer(out=tmp_path, settings=PLAIN, dtype=torch.float64).run()
    assert_equal_runs(straight[1].folder, again.folder)
