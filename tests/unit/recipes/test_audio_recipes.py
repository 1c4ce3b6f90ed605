"""The recipes `vocoder` and `codec` on a folder of audio: mono, stereo, and the settings that parts share."""

import wave

import numpy as np
import pytest

import paragan as pg
from paragan.cli.main import main
from paragan.config import read_recipe

sf = pytest.importorskip("soundfile")
pytest.importorskip("soxr")

TINY = ("train.batch=2", "train.kimg=0.004", "data.segment=1024", "every.save_kimg=0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Eight files of noise, half of them stereo."""
    path = tmp_path_factory.mktemp("audio")
    for number in range(8):
        samples = np.random.default_rng(number).uniform(-0.3, 0.3, (9000, 1 + number % 2))
        sf.write(path / f"{number}.{('wav', 'flac', 'ogg', 'mp3')[number % 4]}", samples, 16_000)
    return path


@pytest.mark.parametrize("recipe", ["vocoder", "codec"])
@pytest.mark.parametrize("words", [("data.name=audio",), ("data.channels=2", "data.sample_rate=16000")])
def test_two_steps_on_a_folder(recipe, words, folder, tmp_path, capsys):
    code = main(
        ["train", recipe, f"data.path={folder}", "model.width=4", *TINY, *words, "--out", str(tmp_path / "run")]
    )
    out = capsys.readouterr().out
    assert code == 0 and "audio files" in out
    run = pg.load(tmp_path / "run")
    channels, rate = (2, 16_000) if "data.channels=2" in words else (1, 8000)
    for name in ("data-1.wav", "step-0000002-generated-1.wav"):
        with wave.open(str(tmp_path / "run" / "samples" / name)) as file:
            assert (file.getnchannels(), file.getframerate(), file.getnframes()) == (channels, rate, 1024)
    assert (tmp_path / "run" / "report.html").read_text().count("<audio") >= 2
    assert run.info.shape == (channels, 1024)


def test_parts_follow_the_settings_of_the_data(folder):
    words = ("data.sample_rate=22050", "data.n_fft=1024", "data.hop=256", "data.n_mels=80", "data.segment=8192")
    config = read_recipe("vocoder", [f"data.path={folder}", *words, "data.fmax=8000", "data.mel_scale=htk"])
    log_mel = config.penalties[1].options
    expected = {"sample_rate": 22_050, "n_fft": 1024, "hop": 256, "n_mels": 80, "mel_scale": "htk"}
    for options in (log_mel, config.evaluation.metrics[0].options):
        assert {name: getattr(options, name) for name in expected} == expected
    assert config.model.options.n_mels == 80
    assert next(writer for writer in config.writers if writer.name == "audio").options.sample_rate == 22_050


def test_a_setting_of_a_part_is_its_own(folder):
    config = read_recipe("codec", [f"data.path={folder}", "penalties.1.n_mels=64", "evaluation.metrics.0.hop=32"])
    assert (config.penalties[1].options.n_mels, config.penalties[1].options.hop) == (64, 64)
    assert config.evaluation.metrics[0].options.hop == 32


def test_speech_without_a_path_is_as_before():
    config = read_recipe("vocoder")
    assert config.penalties[1].options.n_mels == config.model.options.n_mels == 40
    assert config.data.options.path == ""
