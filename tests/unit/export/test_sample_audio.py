"""The writer `audio`, and the audio in the report."""

import base64
import re
import wave

import numpy as np
import pytest
import torch

import paragan as pg
from paragan.core.event import Event
from paragan.report.page import Page
from paragan.report.sample_audio import read_audio
from paragan.writers import audio
from tests.unit.recipes.test_codec_recipe import SMALL


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run that is only read."""
    settings = {**SMALL, "model.width": 32, "train.kimg": 0.008, "every.sample_kimg": 0.004, "every.score_kimg": 0}
    return pg.train("vocoder", settings, out=tmp_path_factory.mktemp("vocoder") / "run")


def samples_of(path):
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 8000)
        return np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32767


def test_files_hold_the_data_and_what_is_generated(run):
    folder = run.folder / "samples"
    steps = [line["step"] for line in run.records("samples")]
    assert steps == [0, 2, 4]
    names = {f"step-{step:07d}-generated-{number}.wav" for step in steps for number in (1, 2, 3, 4)}
    assert {path.name for path in folder.glob("*.wav")} == names | {f"data-{number}.wav" for number in (1, 2, 3, 4)}
    generator = pg.load(run.folder)
    sample = {name: torch.as_tensor(value) for name, value in generator.held_out().fetch(np.arange(2)).items()}
    np.testing.assert_allclose(samples_of(folder / "data-2.wav"), sample["audio"][1, 0], atol=1e-4)
    made = generator.net(mel=sample["mel"])[1, 0]
    np.testing.assert_allclose(samples_of(folder / "step-0000004-generated-2.wav"), made, atol=2e-4)


def test_loud_and_invalid_samples_are_clipped(tmp_path):
    loud = torch.tensor([[[3.0, -3.0, torch.nan, 0.5]]])
    audio.Writer(audio.Options(), tmp_path).write(Event(kind="samples", step=7, images=7, tensors={"generated": loud}))
    found = samples_of(tmp_path / "samples" / "step-0000007-generated-1.wav")
    np.testing.assert_allclose(found, [1, -1, 0, 0.5], atol=1e-4)


def test_stereo_is_written_with_both_channels(tmp_path):
    stereo = torch.linspace(-1, 1, 400).reshape(1, 2, 200)
    audio.Writer(audio.Options(sample_rate=8000), tmp_path).write(
        Event(kind="samples", step=7, images=7, tensors={"generated": stereo})
    )
    with wave.open(str(tmp_path / "samples" / "step-0000007-generated-1.wav")) as file:
        assert file.getnchannels() == 2
        samples = np.frombuffer(file.readframes(200), "<i2").reshape(-1, 2) / 32767
    np.testing.assert_allclose(samples.T, stereo[0], atol=1e-4)


@pytest.mark.parametrize("shape", [(4, 6, 200), (4, 200), (4, 1, 8, 8)])
def test_what_cannot_be_written_is_said_once(tmp_path, capsys, shape):
    writer = audio.Writer(audio.Options(), tmp_path)
    for step in (1, 2):
        writer.write(Event(kind="samples", step=step, images=7, tensors={"generated": torch.zeros(shape)}))
    writer.close()
    assert capsys.readouterr().err.count("warning: writer audio") == 1
    assert not list(tmp_path.rglob("*.wav"))


def test_what_the_report_does_not_play_is_said_once(tmp_path, capsys):
    samples = torch.zeros(4, 2, 300_000)
    audio.Writer(audio.Options(), tmp_path).write(
        Event(kind="samples", step=1, images=7, tensors={"generated": samples})
    )
    assert capsys.readouterr().err.count("report") == 1
    assert len(list(tmp_path.rglob("*.wav"))) == 4


def test_a_run_without_audio_says_so_at_its_end(tmp_path, capsys):
    audio.Writer(audio.Options(), tmp_path).close()
    assert "no samples of audio" in capsys.readouterr().err


def test_a_run_with_audio_says_nothing(run, capsys):
    audio.Writer(audio.Options(), run.folder).close()
    assert not capsys.readouterr().err


def test_report_plays_the_newest_samples(run):
    text = (run.folder / "report.html").read_text()
    sources = re.findall(r'<audio [^>]*src="data:audio/wav;base64,([^"]+)"', text)
    assert len(sources) == 8
    assert base64.b64decode(sources[1]) == (run.folder / "samples" / "step-0000004-generated-1.wav").read_bytes()
    assert "media-src data:" in text
    assert "those of the same samples throughout" in text


def test_report_leaves_out_other_files(run, tmp_path):
    record = Page(run.folder)
    record.record.read()
    newest = record.record.history.samples
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / "step-0000004-generated-1.wav").write_text("<script>")
    large = b"RIFF    WAVE" + bytes(2 << 20)
    (tmp_path / "samples" / "step-0000004-generated-2.wav").write_bytes(large)
    assert read_audio(tmp_path, newest) == []
    assert len(read_audio(run.folder, newest)) == 4
