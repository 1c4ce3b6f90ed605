"""Synthesised speech."""

import numpy as np
import pytest
import torch

from paragan.cli.main import main
from paragan.datasets import speech


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


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"segment": 8192}, "segment=8192, but"),
        ({"sample_rate": 16000}, "sample_rate=16000, but"),
        ({"channels": 2, "segment": 9024}, "channels=2, segment=9024, but"),
    ],
)
def test_settings_that_synthesised_speech_does_not_have_are_named(settings, named):
    with pytest.raises(ValueError, match=named):
        speech.Options(**settings)
    speech.Options(**settings, path="recordings")


@pytest.mark.parametrize("setting", ["sample_rate=16000", "channels=2", "segment=8064"])
def test_settings_that_speech_lacks_are_refused_where_options_are_read_without_an_import(setting, capsys):
    assert main(["config", "vocoder", f"data.{setting}"]) == 2
    assert setting in capsys.readouterr().err
