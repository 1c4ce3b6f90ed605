"""The first command a newcomer types: it trains, and the score says so. In full under `./run test all`."""

import json

import pytest
from PIL import Image

from paragan.cli.main import main

pytestmark = pytest.mark.training


SHORT = ("train.kimg=1", "evaluation.num_images=200")


@pytest.fixture(scope="module", params=[SHORT, pytest.param((), marks=pytest.mark.slow)], ids=["short", "whole"])
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("first") / "digits"
    assert main(["train", *request.param, "--out", str(folder)]) == 0
    return folder


def scores(run) -> list[dict]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "score"]


def test_digits_run_generates_digits(run):
    untrained, *_, trained = scores(run)
    assert trained["protocol"]["extractor_accuracy"] >= 0.97
    assert untrained["label_accuracy"] < 0.3
    if trained["kimg"] < 96:
        assert trained["fd[judge]"] < untrained["fd[judge]"]
        return
    assert trained["label_accuracy"] >= 0.95
    assert trained["class_variance_min"] >= 0.5
    assert trained["coverage"] >= 0.6
    assert trained["fd[judge]"] <= untrained["fd[judge]"] / 10


def test_eval_equals_score_of_training(run, capfd):
    capfd.readouterr()
    assert main(["eval", str(run), "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told.keys() == {"metrics", "intervals", "real", "num_images", "protocol"}
    final = scores(run)[-1]
    assert told["real"] == final["real"] and told["real"].keys() == told["metrics"].keys()
    assert told["metrics"] == {name: final[name] for name in told["metrics"]}
    assert told["intervals"] == final["intervals"] and told["intervals"].keys() == told["metrics"].keys()
    assert told["num_images"] == final["num_images"]


def test_sample_requested_class_is_generated(run, tmp_path, capfd):
    target = tmp_path / "sevens.png"
    assert main(["sample", str(run), "--num", "10", "--class", "7", "--out", str(target)]) == 0
    assert capfd.readouterr().out.strip().splitlines()[-1] == str(target)
    with Image.open(target) as picture:
        assert picture.size == (340, 34)
