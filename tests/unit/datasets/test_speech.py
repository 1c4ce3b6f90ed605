"""Synthesised speech, and the log-mel spectrogram of it."""

import math

import numpy as np
import pytest
import torch

from paragan.core import registry
from paragan.datasets import speech
from paragan.layers.log_mel import LogMel, mel_filters


def plain_filters(sample_rate, fft, bands, low, high):
    """Slaney's triangles, one number at a time."""

    def to_mel(hz):
        return 3 * hz / 200 if hz < 1000 else 15 + 27 * math.log(hz / 1000) / math.log(6.4)

    def to_hz(mel):
        return 200 * mel / 3 if mel < 15 else 1000 * math.exp(math.log(6.4) / 27 * (mel - 15))

    edges = [to_hz(to_mel(low) + (to_mel(high) - to_mel(low)) * k / (bands + 1)) for k in range(bands + 2)]
    filters = np.zeros((bands, fft // 2 + 1))
    for band in range(bands):
        left, centre, right = edges[band : band + 3]
        for k in range(fft // 2 + 1):
            hz = k * sample_rate / fft
            height = min((hz - left) / (centre - left), (right - hz) / (right - centre))
            filters[band, k] = max(0.0, height) * 2 / (right - left)
    return filters


@pytest.mark.parametrize("arguments", [(22050, 1024, 80, 0.0, 8000.0), (8000, 256, 40, 0.0, 4000.0)])
def test_filters_are_slaneys(arguments):
    np.testing.assert_allclose(mel_filters(*arguments).numpy(), plain_filters(*arguments), rtol=1e-9, atol=1e-12)


def test_spectrogram_is_that_of_each_frame():
    audio = torch.randn(2, 1, 512, dtype=torch.float64)
    audio[:, :, 80:160] = 0  # frame 7 is silent: the floor
    mel = LogMel(8000, 64, 16, 10)
    mel.filters = mel_filters(8000, 64, 10, 0, 4000)
    mel.window = torch.hann_window(64, dtype=torch.float64)
    found = mel(audio)
    assert found.shape == (2, 10, 512 // 16)
    padded = np.pad(audio[:, 0].numpy(), ((0, 0), (24, 24)), mode="reflect")
    for frame in (0, 7, 31):
        cut = padded[:, 16 * frame : 16 * frame + 64] * mel.window.numpy()
        magnitude = np.sqrt(np.abs(np.fft.rfft(cut)) ** 2 + 1e-9)
        expected = np.log(np.maximum(magnitude @ mel.filters.numpy().T, 1e-5))
        np.testing.assert_allclose(found[:, :, frame].numpy(), expected, rtol=1e-10, atol=1e-12)


def test_spectrogram_has_a_gradient_in_silence():
    audio = torch.zeros(1, 1, 256, requires_grad=True)
    LogMel(8000, 64, 16, 10)(audio).sum().backward()
    assert audio.grad.isfinite().all()


def test_segments_follow_seed_and_place_alone():
    train = speech.source(speech.Options(utterances=3, segment=512), "train")
    rows = np.array([2, 0, 2])
    first = train.fetch(rows, [4, 5, 6], seed=1)
    again = train.fetch(rows[1:], [5, 6], seed=1)
    assert torch.equal(first["audio"][1:], again["audio"])
    assert not torch.equal(first["audio"][0], first["audio"][2])
    assert not torch.equal(first["audio"], train.fetch(rows, [4, 5, 6], seed=2)["audio"])
    held_out = speech.source(speech.Options(utterances=3, segment=512), "held_out")
    assert torch.equal(held_out.fetch([1])["audio"], held_out.fetch([1], [9], seed=3)["audio"])


def test_audio_has_voice_noise_and_pauses():
    audio = torch.stack([speech.utterance(number) for number in range(12)])
    assert audio.abs().max() < 1
    assert 0.1 < audio.std() < 0.3
    energy = audio.unflatten(1, (-1, 80)).square().mean(2)  # of 10 ms
    assert (energy < 1e-4).any() and (energy > 0.05).any()
    spectrum = torch.stft(audio, 512, window=torch.hann_window(512), return_complex=True).abs().mean(2)
    ratio = spectrum[:, :64].mean(1) / spectrum[:, 192:].mean(1)  # below 1 kHz to above 3 kHz
    assert ratio.median() > 2 and ratio.max() > 2 * ratio.min()  # vowels, and fricatives


def test_segment_of_no_whole_hops_is_refused():
    with pytest.raises(ValueError, match="segment must be a multiple of hop=64, not 300"):
        registry.options("datasets", "speech")(segment=300)
