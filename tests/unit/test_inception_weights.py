"""Inception extractors read public files, by their sha256; here files of random weights take their place."""

import hashlib
import pathlib
import shutil

import pytest
import torch

from paragan.cli.main import main
from paragan.core import registry
from paragan.core.errors import DataError
from paragan.evaluation.chosen_metrics import ChosenMetric
from paragan.features import inception
from paragan.features._inception_network import InceptionNetwork
from paragan.storage.download import RemoteFile
from tests.prepared_extractors import prepared

TINY_RUN = [
    *("train", "digits", "data.size=8", "model.width=4", "train.batch=16", "train.kimg=0.032"),
    *("every.sample_kimg=0", "every.score_kimg=0.032", "evaluation.num_images=10"),
]


@pytest.fixture(scope="module")
def weights_file(tmp_path_factory):
    """A file of random weights in the layout of the public one, which does not count batches."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        state = InceptionNetwork().state_dict()
    file = tmp_path_factory.mktemp("weights") / "inception.pth"
    torch.save({key: tensor for key, tensor in state.items() if "num_batches" not in key}, file)
    return file


@pytest.fixture
def published(weights_file, tmp_path, monkeypatch):
    """The file of random weights as the public one, and an empty cache."""
    publish(monkeypatch, weights_file)
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def publish(monkeypatch, file):
    """Let a file be the public one."""
    content = file.read_bytes()
    remote = RemoteFile(f"https://example.org/{file.name}", len(content), hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(inception, "PUBLIC_FILE", remote)


def test_public_file_is_known_by_the_hash_in_its_name():
    """torch and its followers name a file by the first digits of its sha256."""
    file = inception.PUBLIC_FILE
    assert file.name == f"weights-inception-2015-12-05-{file.sha256[:8]}.pth" and len(bytes.fromhex(file.sha256)) == 32


@pytest.mark.parametrize("is_stored", [True, False])
def test_weights_are_an_extractor_with_published_names(published, weights_file, tmp_path, is_stored):
    folder = tmp_path / "cache" / "inception"
    folder.mkdir(parents=True)
    if is_stored:
        shutil.copy(weights_file, folder)
    extractor = prepared("inception", **({} if is_stored else {"weights": str(weights_file)}))
    assert extractor.sha256 == inception.PUBLIC_FILE.sha256
    features = extractor.compute(torch.zeros(2, 1, 8, 8))
    assert (features.features_BF.shape, features.logits_BK.shape) == ((2, 2048), (2, 1008))
    names = {name: ChosenMetric(registry.load_module("metrics", name).Metric) for name in ("fd", "precision")}
    assert names["fd"].recorded_name(extractor, 50_000) == "fid@50k"
    assert names["fd"].recorded_name(extractor, 2_500) == "fid@2500"
    assert names["precision"].recorded_name(extractor, 50_000) == "precision[inception]"


def test_missing_weights_are_one_line(published, capsys):
    assert main([*TINY_RUN, "evaluation.features=inception", "--out", "run"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "download https://example.org/inception.pth to " in error and "evaluation.features.weights=FILE" in error


def test_other_file_is_refused(published, tmp_path):
    other = tmp_path / "other.pth"
    other.write_bytes(b"pickle")
    with pytest.raises(DataError, match="is not that of the public file"):
        prepared("inception", weights=str(other))


@pytest.mark.parametrize("name", ["missing.pth", "folder"])
def test_file_that_cannot_be_read_is_named(published, tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match=name):
        prepared("inception", weights=str(tmp_path / name))


class _Opens:
    def __reduce__(self):
        return pathlib.Path.touch, (pathlib.Path("opened"),)


def test_weights_are_read_without_running_code_of_their_file(published, tmp_path, monkeypatch):
    file = tmp_path / "inception.pth"
    torch.save({"fc.weight": _Opens()}, file)
    publish(monkeypatch, file)
    with pytest.raises(Exception, match="Weights only load failed"):
        prepared("inception", weights=str(file))
    assert not (tmp_path / "opened").exists()


def test_other_tensors_are_refused(tmp_path):
    file = tmp_path / "one.pth"
    torch.save({"fc.weight": torch.zeros(1008, 2048)}, file)
    with pytest.raises(DataError, match="Conv2d_1a_3x3"):
        inception.read_network(file.read_bytes())
