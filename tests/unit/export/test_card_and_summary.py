"""Calls of a generator of each kind, in `print(pg.load(RUN))` and in the model card, which run as printed."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import paragan as pg
from paragan.core.from_memory import FROM_MEMORY
from paragan.export.generator_file import GeneratorInfo
from paragan.export.model_card import _example, _plain
from paragan.export.tensor_sampler import TensorSampler
from tests.tiny_run import train
from tests.unit.export.image_runs import RUNS

AUDIO = ("vocoder", "codec")


@pytest.fixture
def folder(request, tmp_path):
    """A run of a kind."""
    if request.param == "digits":
        train(tmp_path / "run")
        return tmp_path / "run"
    return request.getfixturevalue("audio_runs" if request.param in AUDIO else "image_runs") / request.param


every_kind = pytest.mark.parametrize("folder", [*RUNS, *AUDIO, "digits"], indirect=True)


@every_kind
def test_card_of_every_kind_has_lines_that_run(folder, exporting, tmp_path, monkeypatch):
    out = tmp_path / "export"
    exporting(folder, "--out", out)
    card = (out / "README.md").read_text()
    monkeypatch.chdir(out)
    (block,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    names: dict = {}
    exec(block, names)  # noqa: S102 our own card
    assert "result" in names or Path("mine.png").is_file()
    assert "thousand" not in card
    assert "{'" not in card.replace("\\", "")


@every_kind
def test_summary_of_every_kind_has_a_call_that_runs(folder):
    generator = pg.load(folder)
    rows = dict(line.split(maxsplit=1) for line in str(generator).splitlines())
    calls = rows["call"].split("; ")
    examples = {"generator": generator, "image": torch.zeros(3, 40, 24), "audio": torch.zeros(1, 800)}
    results = [eval(call, examples) for call in calls]
    assert len(results) == (2 if "translate" in str(folder) else 1)
    assert ("apply" in rows["call"]) == (folder.name != "run")


def sampler_of(forward, shape):
    net = nn.Linear(1, 1)
    net.latent = 2
    net.forward = forward
    info = GeneratorInfo(shape=shape, class_names=(), step=0, images=0)
    config = type("Config", (), {"data": type("Data", (), {"name": FROM_MEMORY, "options": None})})
    return TensorSampler(net=net, info=info, seed=0, config=config, sample_name="x")


def test_example_of_a_generator_of_several_inputs_defines_what_it_uses():
    lines = _example(sampler_of(lambda a, b: a + b, (3, 8, 8)), "")
    assert lines[-1] == "# result = generator.net(a=a, b=b)"


@pytest.mark.parametrize("shape", [(4,), (2, -1)])
def test_call_of_a_generator_of_other_tensors_is_that_of_the_network(shape):
    assert sampler_of(lambda a: a, shape).call_texts() == ["generator.net(a=a)"]


def test_protocol_is_in_words():
    assert _plain({"with": {"split": "held_out", "n": [1, 2]}, "k": None}) == "with split held_out, n 1, 2, k None"
