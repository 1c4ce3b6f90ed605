"""Inception extractors read public files, by their sha256; here files of random weights take their place."""

import hashlib
import pathlib
from dataclasses import replace

import pytest
import torch

from paragan.cli.main import main
from paragan.core import registry
from paragan.evaluation.chosen_metrics import ChosenMetric
from paragan.features._inception_network import InceptionNetwork
from paragan.features.base import inception_weights
from paragan.features.base.inception_weights import PUBLISHED
from paragan.storage.download import RemoteFile
from tests.prepared_extractors import prepared

TINY_RUN = [
    *("train", "digits", "data.size=8", "model.width=4", "train.batch=16", "train.kimg=0.032"),
    *("every.sample_kimg=0", "every.score_kimg=0.032", "evaluation.num_images=10"),
]
NUM_CLASSES = {"inception": 1008, "inception_torchvision": 1000}


@pytest.fixture(scope="module")
def weights_files(tmp_path_factory):
    """For each extractor, a file of random weights in the layout of its public file."""
    folder = tmp_path_factory.mktemp("weights")
    files = {}
    for name, published in PUBLISHED.items():
        with torch.random.fork_rng():
            torch.manual_seed(0)
            state = InceptionNetwork(published.variant).state_dict()
        # files of older versions of torch do not count batches
        state = {key: tensor for key, tensor in state.items() if "num_batches" not in key}
        if name == "inception_torchvision":  # with the auxiliary classifier, and in the format of old versions
            state |= {"AuxLogits.conv0.conv.weight": torch.zeros(128, 768, 1, 1), "AuxLogits.fc.bias": torch.zeros(8)}
        files[name] = folder / f"{name}.pth"
        torch.save(state, files[name], _use_new_zipfile_serialization=name == "inception")
    return files


@pytest.fixture
def published(weights_files, tmp_path, monkeypatch):
    """The files of random weights as the public ones, and an empty cache."""
    for name, file in weights_files.items():
        publish(monkeypatch, name, file)
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def publish(monkeypatch, name, file):
    """Let a file be the public one of an extractor."""
    content = file.read_bytes()
    remote = RemoteFile(f"https://example.org/{file.name}", len(content), hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(PUBLISHED, name, replace(PUBLISHED[name], files=(remote,)))


def test_public_files_are_known_by_the_hashes_in_their_names():
    """torch and its followers name a file by the first digits of its sha256."""
    files = {remote.name: remote.sha256 for published in PUBLISHED.values() for remote in published.files}
    assert {name: sha256[:8] for name, sha256 in files.items()} == {
        "weights-inception-2015-12-05-6726825d.pth": "6726825d",
        "inception_v3_google-0cc3c7bd.pth": "0cc3c7bd",
        "inception_v3_google-1a9a5a14.pth": "1a9a5a14",
    }
    assert all(len(bytes.fromhex(sha256)) == 32 for sha256 in files.values())


def test_imported_weights_are_an_extractor_with_published_names(published, weights_files):
    assert main(["metrics", "import-weights", str(weights_files["inception"])]) == 0
    inception = prepared("inception")
    features = inception.compute(torch.zeros(2, 1, 8, 8))
    assert (features.features_BF.shape, features.logits_BK.shape) == ((2, 2048), (2, 1008))
    names = {name: ChosenMetric(registry.load_module("metrics", name).Metric) for name in ("fd", "precision")}
    assert names["fd"].recorded_name(inception, 50_000) == "fid@50k"
    assert names["fd"].recorded_name(inception, 2_500) == "fid@2500"
    assert names["precision"].recorded_name(inception, 50_000) == "precision[inception]"


def test_imported_weights_of_torchvision_have_names_of_their_own(published, weights_files, capsys):
    assert main(["metrics", "import-weights", str(weights_files["inception_torchvision"])]) == 0
    assert "evaluation.features=inception_torchvision" in capsys.readouterr().out
    extractor = prepared("inception_torchvision")
    features = extractor.compute(torch.zeros(2, 1, 8, 8))
    assert (features.features_BF.shape, features.logits_BK.shape) == ((2, 2048), (2, 1000))
    metric = ChosenMetric(registry.load_module("metrics", "fd").Metric)
    assert metric.recorded_name(extractor, 50_000) == "fd[inception_torchvision]"


@pytest.mark.parametrize("name", NUM_CLASSES)
def test_weights_of_each_layout_are_read_without_import(published, weights_files, name):
    extractor = prepared(name, weights=str(weights_files[name]))
    assert (extractor.num_classes, extractor.sha256) == (NUM_CLASSES[name], PUBLISHED[name].files[0].sha256)


@pytest.mark.parametrize("name", NUM_CLASSES)
def test_weights_of_the_other_layout_are_refused_by_name(published, weights_files, name):
    other = next(other for other in NUM_CLASSES if other != name)
    with pytest.raises(inception_weights.DataError, match=f"evaluation.features={other}, not {name}"):
        prepared(name, weights=str(weights_files[other]))


@pytest.mark.parametrize("name", NUM_CLASSES)
def test_missing_weights_are_one_line(published, capsys, name):
    assert main([*TINY_RUN, f"evaluation.features={name}", "--out", "run"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    command = f"`paragan metrics import-weights {name}.pth`"
    assert f"download https://example.org/{name}.pth, then run {command}" in error


def test_other_file_is_refused(published, tmp_path, capsys):
    other = tmp_path / "other.pth"
    other.write_bytes(b"pickle")
    assert main(["metrics", "import-weights", str(other)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "not that of a public file of Inception weights" in error
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("name", ["missing.pth", "folder"])
def test_file_that_cannot_be_read_is_one_line(published, tmp_path, capsys, name):
    (tmp_path / "folder").mkdir()
    assert main(["metrics", "import-weights", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and name in error


class _Opens:
    def __reduce__(self):
        return pathlib.Path.touch, (pathlib.Path("opened"),)


def test_weights_are_read_without_running_code_of_their_file(published, tmp_path, monkeypatch):
    file = tmp_path / "inception.pth"
    torch.save({"fc.weight": _Opens()}, file)
    publish(monkeypatch, "inception", file)
    with pytest.raises(Exception, match="Weights only load failed"):
        inception_weights.store_weights(file)
    assert not (tmp_path / "opened").exists() and not (tmp_path / "cache").exists()


def test_other_tensors_are_refused(tmp_path):
    file = tmp_path / "one.pth"
    torch.save({"fc.weight": torch.zeros(1008, 2048)}, file)
    with pytest.raises(inception_weights.DataError, match="Conv2d_1a_3x3"):
        inception_weights.read_network(file.read_bytes(), PUBLISHED["inception"].variant)
