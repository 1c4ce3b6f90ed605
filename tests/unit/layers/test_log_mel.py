"""Log-mel spectrograms, one number at a time: both scales, the published setting of HiFi-GAN, two channels."""

import math

import numpy as np
import pytest
import torch

from paragan.core.option_types import SpectrumOptions
from paragan.layers.log_mel import LogMel, mel_filters


def plain_filters(sample_rate, n_fft, n_mels, fmin, fmax, scale):
    """Triangles of area 2 between neighbours on the mel scale."""

    def to_mel(hz):
        if scale == "htk":
            return 2595 * math.log10(1 + hz / 700)
        return 3 * hz / 200 if hz < 1000 else 15 + 27 * math.log(hz / 1000) / math.log(6.4)

    def to_hz(mel):
        if scale == "htk":
            return 700 * (10 ** (mel / 2595) - 1)
        return 200 * mel / 3 if mel < 15 else 1000 * math.exp(math.log(6.4) / 27 * (mel - 15))

    edges = [to_hz(to_mel(fmin) + (to_mel(fmax) - to_mel(fmin)) * k / (n_mels + 1)) for k in range(n_mels + 2)]
    filters = np.zeros((n_mels, n_fft // 2 + 1))
    for band, (left, centre, right) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        for k in range(n_fft // 2 + 1):
            hz = k * sample_rate / n_fft
            height = min((hz - left) / (centre - left), (right - hz) / (right - centre))
            filters[band, k] = max(0.0, height) * 2 / (right - left)
    return filters


def plain_log_mel(audio, *, sample_rate, n_fft, hop, win, n_mels, fmin, fmax, scale):
    """Frame by frame, in float64."""
    window = np.zeros(n_fft)
    first = (n_fft - win) // 2
    window[first : first + win] = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(win) / win)
    before = (n_fft - hop) // 2
    padded = np.pad(audio, (before, n_fft - hop - before), mode="reflect")
    frames = []
    for start in range(0, len(padded) - n_fft + 1, hop):
        spectrum = np.fft.rfft(padded[start : start + n_fft] * window)
        frames.append(np.sqrt(np.abs(spectrum) ** 2 + 1e-9))
    mel = plain_filters(sample_rate, n_fft, n_mels, fmin, fmax, scale) @ np.array(frames).T
    return np.log(np.maximum(mel, 1e-5))


HIFIGAN = {"sample_rate": 22_050, "n_fft": 1024, "hop": 256, "win": 1024, "n_mels": 80, "fmin": 0.0, "fmax": 8000.0}
SHORT_WINDOW = {"sample_rate": 16_000, "n_fft": 512, "hop": 200, "win": 401, "n_mels": 24, "fmin": 50.0, "fmax": 7600.0}
ODD = {"sample_rate": 8000, "n_fft": 255, "hop": 100, "win": 255, "n_mels": 12, "fmin": 20.0, "fmax": 4000.0}


@pytest.mark.parametrize("scale", ["slaney", "htk"])
@pytest.mark.parametrize("settings", [HIFIGAN, SHORT_WINDOW, ODD])
def test_values_are_those_of_the_formulas(settings, scale):
    audio = np.random.default_rng(0).standard_normal(8000) * 0.1
    audio[2000:3500] = 0.0
    log_mel = LogMel(**settings, mel_scale=scale).double()
    names = ("sample_rate", "n_fft", "n_mels", "fmin", "fmax")
    log_mel.filters = mel_filters(*(settings[name] for name in names), scale)
    log_mel.window = torch.hann_window(settings["win"], dtype=torch.float64)
    found = log_mel(torch.from_numpy(audio)[None, None])[0].numpy()
    expected = plain_log_mel(audio, **settings, scale=scale)
    assert found.shape == expected.shape == (settings["n_mels"], 8000 // settings["hop"])
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)


def test_float32_values_of_the_published_setting_are_close():
    audio = np.random.default_rng(1).standard_normal(8192) * 0.1
    found = LogMel(**HIFIGAN)(torch.from_numpy(audio).float()[None])[0]
    np.testing.assert_allclose(found, plain_log_mel(audio, **HIFIGAN, scale="slaney"), atol=1e-3)


def test_spectrogram_has_a_gradient_in_silence():
    audio = torch.zeros(1, 1, 256, requires_grad=True)
    LogMel(8000, 64, 16, 10)(audio).sum().backward()
    assert audio.grad.isfinite().all()


def test_two_channels_have_the_spectrogram_of_each():
    audio = torch.randn(3, 2, 1024)
    log_mel = LogMel()
    found = log_mel(audio)
    assert found.shape == (3, 80, 16)
    assert torch.equal(found, torch.cat([log_mel(audio[:, :1]), log_mel(audio[:, 1])], 1))


def test_options_that_are_null_have_the_defaults():
    log_mel = LogMel.of(SpectrumOptions(n_mels=20, mel_scale="htk"))
    assert torch.equal(log_mel.filters, LogMel(8000, 256, 64, 20, mel_scale="htk").filters)
    assert log_mel.hop == 64
