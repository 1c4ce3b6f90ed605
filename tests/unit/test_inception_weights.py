"""The Inception extractor reads one public file, by its sha256; here a file of random weights takes its place."""

from __future__ import annotations

import hashlib

import pytest
import torch

from paragan.cli.main import main
from paragan.core import registry
from paragan.evaluation.chosen_metrics import ChosenMetric
from paragan.features import _inception_weights
from paragan.features._inception_network import InceptionNetwork
from paragan.storage.download import RemoteFile
from tests.prepared_extractors import prepared

TINY_RUN = [
    *("train", "digits", "data.size=8", "model.width=4", "train.batch=16", "train.kimg=0.032"),
    *("every.sample_kimg=0", "every.score_kimg=0.032", "evaluation.num_images=10"),
]


@pytest.fixture(scope="module")
def weights_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "inception.pth"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        state = InceptionNetwork().state_dict()
    # files of older versions of torch do not count batches
    torch.save({name: tensor for name, tensor in state.items() if "num_batches" not in name}, path)
    return path


@pytest.fixture
def published(weights_file, tmp_path, monkeypatch):
    """The file of random weights as the public one, and an empty cache."""
    content = weights_file.read_bytes()
    remote = RemoteFile("https://example.org/inception.pth", len(content), hashlib.sha256(content).hexdigest())
    for function in (_inception_weights.store_weights, _inception_weights.load_published):
        monkeypatch.setattr(function, "__defaults__", (*function.__defaults__[:-1], remote))
    monkeypatch.setattr(_inception_weights.stored_path, "__defaults__", (remote,))
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return remote


def test_imported_weights_are_an_extractor_with_published_names(published, weights_file):
    assert main(["metrics", "import-weights", str(weights_file)]) == 0
    inception = prepared("inception")
    features = inception.compute(torch.zeros(2, 1, 8, 8))
    assert (features.features_BF.shape, features.logits_BK.shape) == ((2, 2048), (2, 1008))
    names = {name: ChosenMetric(registry.load_module("metrics", name).Metric) for name in ("fd", "precision")}
    assert names["fd"].recorded_name(inception, 50_000) == "fid@50k"
    assert names["fd"].recorded_name(inception, 2_500) == "fid@2500"
    assert names["precision"].recorded_name(inception, 50_000) == "precision[inception]"


def test_missing_weights_are_one_line(published, capsys):
    assert main([*TINY_RUN, "evaluation.features=inception", "--out", "run"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert (
        "download https://example.org/inception.pth, then run `paragan metrics import-weights inception.pth`" in error
    )


def test_other_file_is_refused(published, tmp_path, capsys):
    other = tmp_path / "other.pth"
    other.write_bytes(b"pickle")
    assert main(["metrics", "import-weights", str(other)]) == 2
    assert "of the public Inception weights" in capsys.readouterr().err
    assert not (tmp_path / "cache").exists()


def test_other_tensors_are_refused(tmp_path):
    file = tmp_path / "one.pth"
    torch.save({"fc.weight": torch.zeros(1008, 2048)}, file)
    with pytest.raises(_inception_weights.DataError, match="Conv2d_1a_3x3"):
        _inception_weights.read_network(file.read_bytes())
