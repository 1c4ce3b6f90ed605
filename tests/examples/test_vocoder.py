"""The vocoder's sound has the spectrogram that was asked for, at the right pitch."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="module")
def vocoder(example):
    return example("vocoder")


@pytest.fixture(scope="module")
def sounds(vocoder):
    return vocoder.main(steps=200)


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


def test_vocoder_every_discriminator_reads_the_wave(vocoder):
    wave, _ = vocoder.chirps(2, torch.Generator().manual_seed(0))
    discriminators = vocoder.Discriminators()
    verdict = discriminators(wave, None)
    assert len(discriminators.ears) == 4 and verdict.logits_B.shape[0] == verdict.features.shape[0] == 2
    verdict.logits_B.sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in discriminators.parameters())


def test_vocoder_features_and_spectrogram_are_terms_of_the_generator(vocoder, capsys):
    vocoder.main(steps=1)
    told = capsys.readouterr().out
    assert "g/loss/features" in told and "g/loss/spectral" in told
