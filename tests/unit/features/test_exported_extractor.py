"""The extractor `exported`: images become what the network was trained on, and the record says how."""

import hashlib
import json

import pytest
import torch
import torch.nn.functional as F

import paragan as pg
from paragan.cli.main import main
from paragan.config import outside_names
from paragan.config.recipe import parse_recipe
from paragan.core.errors import ConfigError
from paragan.storage import exported_network
from tests.prepared_extractors import blank, prepared

pytestmark = pytest.mark.usefixtures("programs_read_once")

WORDS = ["data.size=8", "model.width=4", "train.batch=8", "train.kimg=0.016", "every.sample_kimg=0"]
WORDS += ["every.score_kimg=0.016", "evaluation.num_images=30", "writers=[jsonl]", "evaluation.resamples=0"]
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


def extractor_of(path, shape=(3, 28, 28), **options):
    return prepared("exported", blank(*shape), weights=str(path), **options)


def test_features_are_those_of_the_network_on_normalised_images(transformer_file):
    network, path = transformer_file
    x = torch.rand(7, 3, 28, 28) * 2 - 1
    found = extractor_of(path, output="cls").compute(x)
    with torch.no_grad():
        expected = network(((x + 1) / 2 - MEAN) / STD)["cls"]
    assert torch.allclose(found.features_BF, expected, atol=1e-5)
    assert found.logits_BK is None
    assert extractor_of(path, output="cls").sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("resize", ["bilinear", "bicubic"])
def test_images_of_one_channel_and_another_size_are_repeated_and_resized(transformer_file, resize):
    network, path = transformer_file
    x = torch.rand(4, 1, 40, 20) * 2 - 1
    extractor = extractor_of(path, (1, 40, 20), output="cls", resize=resize)
    large = F.interpolate(x, (28, 28), mode=resize, antialias=True).clamp(-1, 1).repeat(1, 3, 1, 1)
    with torch.no_grad():
        expected = network(((large + 1) / 2 - MEAN) / STD)["cls"]
    assert torch.allclose(extractor.compute(x).features_BF, expected, atol=1e-5)
    assert extractor.resize == f"{resize} to 28x28"


def test_output_and_pool_select_the_features(transformer_file, maps_file):
    network, path = transformer_file
    x = torch.rand(4, 3, 28, 28) * 2 - 1
    with torch.no_grad():
        tokens = network(((x + 1) / 2 - MEAN) / STD)["patches"]
        maps = maps_file[0](x)[1]
    first, mean = (extractor_of(path, output="patches", pool=pool).compute(x).features_BF for pool in ("first", "mean"))
    assert torch.allclose(first, tokens[:, 0], atol=1e-5)
    assert torch.allclose(mean, tokens.mean(1), atol=1e-5)
    plain = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}  # [-1, 1], as the game has them
    of_maps = extractor_of(maps_file[1], output="1", pool="mean", size=28, **plain).compute(x).features_BF
    assert torch.allclose(of_maps, maps.mean((2, 3)), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": "features"}, r"output=features is not an output of .*; choose one of cls, patches"),
        ({"output": "cls", "size": 14}, r"size=14, but .* takes images of 28x28; leave size out"),
        ({"output": "cls", "mean": (0.5,)}, r"mean and std have 1 and 3 values, and .* takes 3 channels"),
        ({"output": "cls", "std": (0.0, 1.0, 1.0)}, r"std above 0"),
    ],
)
def test_invalid_options_are_refused(transformer_file, options, message):
    with pytest.raises(ConfigError, match=message):
        extractor_of(transformer_file[1], **options)


def test_missing_file_size_and_pool_are_requested(transformer_file, maps_file):
    with pytest.raises(ConfigError, match=r"weights is required for the feature extractor 'exported'; pass"):
        prepared("exported", blank(3, 28, 28))
    with pytest.raises(ConfigError, match=r"evaluation\.features\.size is required"):
        extractor_of(maps_file[1])
    with pytest.raises(ConfigError, match=r"takes 3 channels, but the data has 2"):
        extractor_of(transformer_file[1], (2, 28, 28), output="cls")
    with pytest.raises(
        ConfigError, match=r"the shape \(1, 16, 32\), not \(B, F\); pass evaluation\.features\.pool=mean"
    ):
        extractor_of(transformer_file[1], output="patches").compute(torch.zeros(1, 3, 28, 28))


def test_a_run_is_scored_by_a_program_and_its_stamp_has_all_settings(transformer_file, tmp_path, monkeypatch):
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path / "cache"))
    path = transformer_file[1]
    features = f"evaluation.features={{name: exported, weights: '{path}', output: cls}}"
    assert main(["train", "digits", *WORDS, features, "--out", str(tmp_path / "run")]) == 0
    score = json.loads((tmp_path / "run" / "score.json").read_text())
    assert score["fd[tiny_vit]"] > 0 and "label_accuracy" not in score
    protocol = score["protocol"]
    assert protocol["extractor"] == "tiny_vit"
    assert protocol["extractor_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert protocol["extractor_resize"] == "bicubic to 28x28"
    assert protocol["extractor_settings"]["output"] == "cls"
    assert len(protocol["extractor_settings"]["mean"]) == 3


def test_an_invalid_program_is_refused_before_anything_is_written(tmp_path, capfd):
    (tmp_path / "net.pt2").write_bytes(b"no program")
    features = f"evaluation.features={{name: exported, weights: '{tmp_path}/net.pt2'}}"
    assert main(["train", "digits", *WORDS, features, "--out", str(tmp_path / "run")]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "net.pt2: " in line
    assert not (tmp_path / "run").exists()


@pytest.fixture
def run(transformer_file, tmp_path, monkeypatch):
    """A run whose config names a program, made by a recipe of the user, which needs no trust."""
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(
        "data: {name: digits, size: 8}\nmodel: {name: dcgan, width: 4, latent: 8}\nloss: hinge\n"
        "train: {batch: 8, kimg: 0.016}\nevery: {sample_kimg: 0}\nwriters: [jsonl]\n"
        f"evaluation: {{num_images: 30, resamples: 0, features: {{name: exported, weights: '{transformer_file[1]}', "
        "output: cls}}\n"
    )
    assert main(["train", "mine.yaml", "--out", "run"]) == 0
    return tmp_path / "run"


@pytest.mark.parametrize("words", [("eval", "run"), ("sample", "run"), ("train", "run/config.yaml", "--out", "other")])
def test_program_that_a_run_names_is_loaded_with_trust_only(run, monkeypatch, capfd, words):
    loaded = []
    real = exported_network._load
    monkeypatch.setattr(exported_network, "_load", lambda *given: loaded.append(given) or real(*given))
    assert main([*words]) == 2
    line = capfd.readouterr().err.splitlines()[-1]
    assert "is a program of torch.export, whose code this file may not run; if you trust it, pass --trust" in line
    assert not loaded
    assert main([*words, "--trust"]) == 0
    assert bool(loaded) == (words[0] != "sample")


def test_program_that_a_run_names_needs_trust_in_python_and_in_printed_commands(run, capfd):
    with pytest.raises(ConfigError, match=r"whose code this file may not run; .*trust=True"):
        pg.load(run)
    assert pg.load(run, trust=True).sample(1).tensor.shape == (1, 1, 8, 8)
    assert main(["train", "mine.yaml", "train.kimg=0.024", "--out", "longer"]) == 0
    assert "--trust" in capfd.readouterr().out


@pytest.mark.parametrize(
    "setting",
    [
        "evaluation: {features: {name: exported, weights: net.pt2}}",
        "evaluation: {metrics: [{name: perceptual_distance, weights: net.pt2}]}",
        "penalties: [{name: perceptual, weights: net.pt2}]",
    ],
)
def test_every_setting_with_a_program_needs_trust(setting):
    text = f"data: digits\nmodel: dcgan\nloss: hinge\n{setting}\n"
    with pytest.raises(ConfigError, match=r"weights: 'net\.pt2' is a program of torch.export"):
        parse_recipe(text, "a run", ())
    config = parse_recipe(text, "a run")
    assert outside_names(config) == {"net.pt2"}
    assert parse_recipe(text, "a run", outside_names(config)) == config
