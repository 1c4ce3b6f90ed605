"""Labelled data with a class that is rare, or in one split alone: every run trains and is scored."""

from __future__ import annotations

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


LAYOUTS = {
    "a last class of one image": ({"a": 40, "b": 40, "c": 1}, 60),
    "a class in val only": ({"train/a": 30, "train/b": 30, "val/a": 10, "val/b": 10, "val/c": 4}, 40),
    "a first class that is missing in training": ({"train/b": 30, "train/c": 30, "val/a": 4, "val/b": 10}, 40),
    "more classes than reference images": ({f"c{n:02}": 2 for n in range(40)}, 20),
}


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
    words = {**WORDS, "data.path": str(folder), "evaluation.num_images": 20}
    run = pg.train("own", {**words, "evaluation.metrics": ["fd", str(metrics)]}, out=tmp_path / "run")
    found = scores(run)
    assert [sorted(name for name in x if "[" in name) for x in found] == [["fd[judge]"]] * 3
    text = capsys.readouterr().out
    assert text.count("warning: score: broken[judge] has no value: no spread") == 1


def test_a_score_that_fails_is_said_and_the_run_goes_on(tmp_path, capsys, monkeypatch):
    from paragan.evaluation.evaluator import Evaluator

    def fail(self, generate):
        raise RuntimeError("the extractor is out of memory")

    monkeypatch.setattr(Evaluator, "score", fail)
    folder = images(tmp_path / "data", {"a": 30, "b": 30})
    run = pg.train("own", {**WORDS, "data.path": str(folder), "evaluation.num_images": 20}, out=tmp_path / "run")
    assert run.is_finished and not scores(run)
    text = capsys.readouterr().out
    for step in (0, 4, 8):
        line = f"warning: the score of step {step} failed: the extractor is out of memory; training continues"
        assert line in text
