"""`sample`, `export`, `eval` and `pg.load` of a run on named tensors."""

import json

import pytest
import torch

import paragan as pg
from paragan.cli.main import main
from paragan.datasets import speech
from paragan.metrics import log_mel_distance

SMALL = [
    "codec", "data.utterances=4", "data.segment=1024", "model.width=4", "model.codes=16", "model.windows=[128]",
    "train.batch=2", "train.kimg=0.004", "every.log_steps=1", "every.sample_kimg=0", "every.score_kimg=0",
    "evaluation.metrics=[log_mel_distance, {name: codebook_usage, codes: 16, codebooks: 4}]",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run that is only read."""
    folder = tmp_path_factory.mktemp("codec") / "run"
    assert main(["train", *SMALL, "--out", str(folder)]) == 0
    return folder


def held_out(n):
    return speech.source(speech.Options(utterances=4, segment=1024), "held_out").fetch(torch.arange(n).numpy())["audio"]


def test_loaded_generator_makes_what_the_run_scores(run, capsys):
    generator = pg.load(run)
    assert (generator.inputs, generator.sample_name, generator.info.shape) == (("audio",), "audio", (1, 1024))
    made = generator.net(audio=held_out(40)).images
    expected = log_mel_distance.Metric.from_reference().update(pg.SamplePairs(made, held_out(40))).compute()
    capsys.readouterr()
    assert main(["eval", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["metrics"]["log_mel_distance"] == pytest.approx(expected, rel=1e-5)


def test_exported_file_has_equal_weights_and_a_card(run, tmp_path):
    assert main(["export", str(run), "--out", str(tmp_path)]) == 0
    again = pg.load(tmp_path / "generator.safetensors")
    x = held_out(2)
    torch.testing.assert_close(again.net(audio=x).images, pg.load(run).net(audio=x).images, rtol=0, atol=0)
    card = (tmp_path / "README.md").read_text()
    assert "1x1024" in card and "generator.apply(audio)" in card
    assert (tmp_path / "samples.png").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sample", "RUN", "--walk", "4"], "--walk does not apply: this generator makes audio from audio"),
        (["sample", "RUN", "--classes"], "--classes does not apply: this generator makes audio from audio"),
    ],
)
def test_mistake_is_one_line(run, capsys, words, message):
    capsys.readouterr()
    assert main([str(run) if word == "RUN" else word for word in words]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_loaded_generator_samples_from_held_out_inputs(run):
    generator = pg.load(run)
    torch.testing.assert_close(generator.sample(3), generator.net(audio=held_out(3)).images, rtol=0, atol=0)
    assert len(repr(generator)) < 80


def test_exported_generator_does_not_sample_without_inputs(run, tmp_path):
    assert main(["export", str(run), "--out", str(tmp_path)]) == 0
    with pytest.raises(
        pg.ConfigError, match=r"maps audio to audio, and there is no data here; call net\(audio=audio\)"
    ):
        pg.load(tmp_path).sample(3)
