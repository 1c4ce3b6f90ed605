"""`apply` of vocoders and codecs to recordings, beside the network called by hand on the whole of them."""

import wave

import numpy as np
import pytest
import torch

import paragan as pg
from paragan.cli.main import main
from paragan.datasets.audio import audio_format

soundfile = pytest.importorskip("soundfile")
pytest.importorskip("soxr")

RATE = 8000
SECONDS = {"short": 0.1, "long": 10.0}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """Recordings of 0.1 s and 10 s, one of another rate, one in stereo, one that is damaged."""
    root = tmp_path_factory.mktemp("recordings")
    draws = np.random.default_rng(0)
    for name, seconds in SECONDS.items():
        soundfile.write(root / f"{name}.wav", draws.normal(0, 0.1, int(seconds * RATE)).clip(-1, 1), RATE)
    soundfile.write(root / "rate.flac", draws.normal(0, 0.1, 22050).clip(-1, 1), 22050)
    soundfile.write(root / "stereo.wav", draws.normal(0, 0.1, (RATE, 2)).clip(-1, 1), RATE)
    return root


@pytest.fixture(scope="module")
def runs(audio_runs):
    return audio_runs


def written(path):
    with wave.open(str(path)) as file:
        assert file.getframerate() == RATE
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels()).T / 32767


@pytest.mark.parametrize("name", ["vocoder", "codec"])
def test_recordings_of_any_length_are_written_under_their_names(runs, recordings, tmp_path, name):
    assert main(["apply", str(runs / name), str(recordings), "--out", str(tmp_path / "out")]) == 0
    lengths = {path.name: written(path).shape for path in (tmp_path / "out").glob("*.wav")}
    assert lengths == {"short.wav": (1, 800), "long.wav": (1, 80000), "rate.wav": (1, RATE), "stereo.wav": (1, RATE)}


@pytest.mark.parametrize("name", ["vocoder", "codec"])
def test_written_audio_is_that_of_the_network(runs, recordings, tmp_path, name):
    main(["apply", str(runs / name), str(recordings / "long.wav"), "--out", str(tmp_path)])
    sampler = pg.load(runs / name)
    x = torch.from_numpy(soundfile.read(recordings / "long.wav", dtype="float32")[0])[None, None]
    with torch.no_grad():
        derived = audio_format(sampler.config.data.options).derived["mel"](x)
        made = sampler.net(derived) if name == "vocoder" else sampler.net(x).images
    difference = written(tmp_path / "long.wav") - made[0].clamp(-1, 1).numpy()
    assert np.abs(difference).max() <= 1.5 / 32767


@pytest.mark.parametrize("name", ["vocoder", "codec"])
def test_chunks_equal_the_whole_away_from_seams(runs, name):
    sampler = pg.load(runs / name)
    x = torch.randn(1, 1, 12_800).clamp(-1, 1) / 4
    whole, chunks = sampler.apply(x), sampler.apply(x, tile=4096, overlap=2048)
    torch.testing.assert_close(chunks, whole, rtol=0, atol=1e-3)


def test_tokens_of_a_recording_give_the_audio(runs, recordings, tmp_path):
    codec = str(runs / "codec")
    for words in (["tokens", "--encode"], ["direct"]):
        main(["apply", codec, str(recordings / "short.wav"), "--out", str(tmp_path / words[0]), *words[1:]])
    main(["apply", codec, str(tmp_path / "tokens"), "--out", str(tmp_path / "decoded"), "--decode"])
    direct, decoded = (written(tmp_path / name / "short.wav") for name in ("direct", "decoded"))
    assert direct.shape == decoded.shape == (1, 800)
    assert np.abs(direct - decoded).max() <= 2 / 32767


def test_damaged_recording_is_named(runs, recordings, tmp_path, capsys):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "bad.wav").write_bytes(b"RIFF" + bytes(60))
    (tmp_path / "in" / "good.wav").write_bytes((recordings / "short.wav").read_bytes())
    assert main(["apply", str(runs / "codec"), str(tmp_path / "in"), "--out", str(tmp_path / "out")]) == 2
    assert [path.name for path in (tmp_path / "out").glob("*.wav")] == ["good.wav"]
    message = capsys.readouterr().err
    assert "bad.wav" in message
    assert "data." not in message and "correct, convert or replace the file" in message


def test_folder_without_audio_is_one_line(runs, tmp_path, capsys):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "notes.txt").write_text("no sound")
    assert main(["apply", str(runs / "codec"), str(tmp_path / "in"), "--out", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err.strip()
    assert "audio" in message
    assert "\n" not in message


@pytest.mark.parametrize(("peak", "is_refused"), [(3.95, True), (2.5, True), (1.2, False)])
def test_audio_far_outside_of_its_range_is_named_and_left_out(runs, tmp_path, capsys, peak, is_refused):
    soundfile.write(tmp_path / "loud.wav", np.sin(np.arange(800)) * peak, RATE, subtype="FLOAT")
    words = ["apply", str(runs / "codec"), str(tmp_path / "loud.wav"), "--out", str(tmp_path / "out")]
    assert main(words) == (2 if is_refused else 0)
    assert ("loud.wav: a value of" in capsys.readouterr().err) == is_refused
