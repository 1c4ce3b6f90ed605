"""Labelled data with a class that is rare, or in one split alone: every run trains and is scored."""

import json

import numpy as np
import pytest
from PIL import Image

import paragan as pg

WORDS = {
    "model.width": 4, "model.latent": 8, "train.batch": 8, "train.kimg": 0.064, "every.sample_kimg": 0,
    "every.score_kimg": 0.032, "data.size": 16,
}  # fmt: skip


def images(folder, counts):
    """Folders of noise, CLASS: number of images."""
    rng = np.random.default_rng(0)
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


def scores(run):
    return [x for x in map(json.loads, (run.folder / "metrics.jsonl").read_text().splitlines()) if x["kind"] == "score"]


# its features are the first numbers of an image: it costs nothing, where the judge trains for seconds
EXTRACTOR = """
import torch
from torch import nn

from paragan.features.base.extractor import FeatureExtractor


class Net(nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :8] * float("{factor}")


def prepare(options, context):
    shape = context.train.shape
    return FeatureExtractor(name="first", network=Net(), shape=shape, num_classes=None, sha256="0" * 64)
"""


UNBUILT = """
def prepare(options, context):
    def build():
        raise OSError("no weights here")

    return build
"""


def first_numbers(folder, factor=1):
    file = folder / "first.py"
    file.write_text(UNBUILT if factor == "unbuilt" else EXTRACTOR.format(factor=factor))
    return str(file)


def own_words(tmp_path, folder):
    """Settings of a run on a folder of images, scored by their first numbers."""
    features = first_numbers(tmp_path)
    return {**WORDS, "data.path": str(folder), "evaluation.num_images": 20, "evaluation.features": features}


LAYOUTS = {
    "a last class of one image": ({"a": 40, "b": 40, "c": 1}, 60),
    "a class in val only": ({"train/a": 30, "train/b": 30, "val/a": 10, "val/b": 10, "val/c": 4}, 40),
    "a first class that is missing in training": ({"train/b": 30, "train/c": 30, "val/a": 4, "val/b": 10}, 40),
    "more classes than reference images": ({f"c{n:02}": 2 for n in range(40)}, 20),
}


@pytest.mark.usefixtures("quick_judge")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_rare_class_ends_no_run_and_no_score(tmp_path, layout):
    counts, num_images = LAYOUTS[layout]
    folder = images(tmp_path / "data", counts)
    words = {**WORDS, "data.path": str(folder), "evaluation.num_images": num_images}
    run = pg.train("own", words, out=tmp_path / "run")
    assert json.loads((tmp_path / "run" / "exit.json").read_text())["code"] == 0
    found = scores(run)
    assert [x["step"] for x in found] == [0, 4, 8]
    assert all(np.isfinite(x["fd[judge]"]) for x in found)


def test_a_metric_that_fails_is_said_and_absent(tmp_path, capsys):
    metrics = tmp_path / "broken.py"
    metrics.write_text(
        "from paragan.metrics.fd import Metric as Base\n\n\n"
        "class Metric(Base):\n"
        "    name = 'broken'\n\n"
        "    def compute(self):\n"
        "        raise ZeroDivisionError('no spread')\n"
    )
    folder = images(tmp_path / "data", {"a": 30, "b": 30})
    words = own_words(tmp_path, folder)
    run = pg.train("own", {**words, "evaluation.metrics": ["fd", str(metrics)]}, out=tmp_path / "run")
    found = scores(run)
    assert [sorted(name for name in x if "[" in name) for x in found] == [["fd[first]"]] * 3
    text = capsys.readouterr().err
    assert text.count("warning: score: broken[first] has no value: no spread") == 1


def test_a_score_that_fails_is_said_and_the_run_goes_on(tmp_path, capsys, monkeypatch):
    from paragan.evaluation.evaluator import Evaluator

    def fail(self, generate, is_sharded):
        raise RuntimeError("the extractor is out of memory")

    monkeypatch.setattr(Evaluator, "score", fail)
    folder = images(tmp_path / "data", {"a": 30, "b": 30})
    run = pg.train("own", own_words(tmp_path, folder), out=tmp_path / "run")
    assert run.is_finished and not scores(run)
    text = capsys.readouterr().err
    for step in (0, 4, 8):
        line = f"warning: the score of step {step} failed: the extractor is out of memory; training continues"
        assert line in text


BROKEN_METRICS = {
    "a tensor": ("return torch.tensor(2.0)", 2.0),
    "nothing": ("return None", None),
    "a text": ("return 'good'", None),
    "no number": ("return float('nan')", None),
    "an error on halves alone": ("if len(self.seen.counts) < 0: raise ValueError\n        return 3.0", 3.0),
}


@pytest.mark.parametrize("kind", BROKEN_METRICS)
def test_what_a_metric_returns_takes_no_other_value_down(tmp_path, capsys, kind):
    body, value = BROKEN_METRICS[kind]
    metrics = tmp_path / "broken.py"
    body = (
        body
        if kind != "an error on halves alone"
        else ("if self.num_fake == 10:\n            raise ValueError('too few for me')\n        return 3.0")
    )
    metrics.write_text(
        "import torch\nfrom dataclasses import dataclass, replace\n"
        "from paragan.metrics.fd import Metric as Base\n\n\n"
        "@dataclass(frozen=True)\nclass Metric(Base):\n"
        "    name = 'broken'\n    num_fake: int = 0\n\n"
        "    def update(self, samples):\n        return replace(self, num_fake=self.num_fake + len(samples))\n\n"
        f"    def compute(self):\n        {body}\n"
    )
    folder = images(tmp_path / "data", {"a": 30, "b": 30})
    words = {**own_words(tmp_path, folder), "every.score_kimg": 1}
    run = pg.train("own", {**words, "evaluation.metrics": [str(metrics), "fd"]}, out=tmp_path / "run")
    (first, *_) = scores(run)
    assert np.isfinite(first["fd[first]"])
    assert first.get("broken[first]") == value
    assert [*first["directions"]] == ["broken[first]", "fd[first]"]  # the next best is not chosen by another metric
    assert ("has no value" in capsys.readouterr().err) is (value is None)


@pytest.mark.parametrize("factor", ["nan", "0", "unbuilt"])
def test_an_extractor_that_fails_ends_no_grid(tmp_path, capsys, factor):
    words = {
        "data.size": 8, "model.width": 4, "model.latent": 8, "train.batch": 8, "train.kimg": 0.1, "grid.shape": "1x2",
        "grid.executor": "loop", "grid.batches": 1,
        "grid.mixture.num_images": 20, "grid.fitness.num_images": 20, "every.sample_kimg": 0,
        "every.score_kimg": 0.064, "evaluation.num_images": 20, "evaluation.features": first_numbers(tmp_path, factor),
    }  # fmt: skip
    run = pg.train("digits", words, out=tmp_path / "run")
    assert run.is_finished
    text = capsys.readouterr().err
    assert text.count("warning: score: the mixture has no value") == 1
    assert pg.train("digits", {**words, "train.kimg": 0.112}, out=tmp_path / "run").is_finished  # resumes
    assert "training continues" in text
