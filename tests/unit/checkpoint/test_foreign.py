"""Run folders and exported files that are damaged, that lie, or that would like their code run: one line each."""

import json
import pickle
import shutil
import struct
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import paragan as pg
from paragan.checkpoint import reader
from paragan.cli.export import export
from paragan.cli.sample import sample_command
from paragan.core import registry
from paragan.core.layout import TensorLayout
from paragan.export import generator_file
from paragan.runs.evaluate import evaluate_run
from paragan.runs.open_run import open_run
from tests.tiny_run import newest, rewrite_state, train


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("foreign") / "run"
    train(folder, "g.ema.half_life_kimg=0.1")
    export(folder, out=folder / "g.safetensors")
    return folder


@pytest.fixture
def run(trained, tmp_path):
    """A copy, to spoil."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def refused(path, **options) -> str:
    with pytest.raises(pg.ParaganError) as told:
        pg.load(path, **options)
    text = str(told.value)
    assert "\n" not in text, text
    return text


def test_load_damaged_checkpoint_is_skipped(run):
    before = newest(run)
    shutil.copytree(before, before.with_name("step-000009999"))
    (newest(run) / "g.safetensors").write_bytes(b"no")
    with pytest.warns(UserWarning, match=r"g\.safetensors is missing or damaged .*; trying the one before"):
        assert pg.load(run).info.step == 4
    (before / "g.safetensors").unlink()
    with pytest.warns(UserWarning, match="trying the one before"):
        assert "checkpoints: all checkpoints are damaged" in refused(run)
    shutil.rmtree(run / "checkpoints")
    assert "no checkpoint yet; train first" in refused(run)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda values: values.clear(), "'players' is missing"),
        (lambda values: values["model"].update(shape=[1, 8]), "the shape [1, 8] is not that of images"),
        (lambda values: values["model"].update(shape=[1, 0, 8]), "state.json: invalid value"),
        (lambda values: values["model"].update(shape=[1, 8, "8"]), "state.json: invalid value"),
        (lambda values: values["model"].update(class_names=[1]), "state.json: invalid value"),
        (lambda values: values["clock"].update(step=None), "state.json: invalid value"),
        (lambda values: values["model"].update(shape=[1, 16, 16]), "checkpoint of another model"),
        (lambda values: values.update(clock=5), "state.json: invalid value"),
    ],
)
def test_load_invalid_checkpoint_values_is_one_line(run, change, said):
    rewrite_state(run, change)
    assert said in refused(run)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda values: values.update(clock=5), "invalid value ('int' object is not subscriptable)"),
        (lambda values: values["clock"].update(step="4"), "invalid value ({'step': '4', 'images': 64})"),
        (lambda values: values["clock"].update(images=-1), "invalid value ({'step': 4, 'images': -1})"),
        (lambda values: values.update(position=1.5), "invalid value ({'position': 1.5})"),
        (lambda values: values.update(players={"g": 5, "d": 5}), "invalid value (argument of type 'int'"),
        (lambda values: values["players"]["d"].update(version=None), "invalid value ({'version': None"),
        (lambda values: values["players"].pop("d"), "'d' is missing"),
        (lambda values: values["model"].update(class_names=None), "invalid value ('NoneType'"),
        (lambda values: values["model"].update(class_names=7), "invalid value ("),
        (lambda values: values.update(model=7), "invalid value ("),
    ],
)
def test_resume_invalid_checkpoint_values_is_one_line(run, change, said):
    rewrite_state(run, change)
    with pytest.raises(pg.CheckpointError) as told:
        open_run(run)
    assert str(told.value).startswith(f"checkpoint {newest(run)}: {said}")
    assert "\n" not in str(told.value)


def test_load_warning_has_no_control_characters(run, capsys):
    there = run.rename(run.with_name("a\x1b[2Jb"))
    (newest(there) / "g.safetensors").write_bytes(b"no")
    with pytest.warns(UserWarning, match=r"a\?\[2Jb.*trying the one before"), pytest.raises(pg.CheckpointError):
        pg.load(there)
    with pytest.raises(pg.CheckpointError):
        open_run(there)
    assert "a?[2Jb" in capsys.readouterr().err


def spoil(path: Path, tensors=None, header=None, **metadata) -> Path:
    """The exported file with something else in it."""
    told = generator_file.safe_open(path, "pt").metadata()
    save_file(tensors or load_file(path), path, {**told, **metadata})
    if header is not None:
        path.write_bytes(struct.pack("<Q", header) + path.read_bytes()[8:])
    return path


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.complex64])
def test_load_complex_weights_is_refused(run, dtype):
    file = run / "g.safetensors"
    found = generator_file.read(file)
    generator_file.write(file, replace(found, weights={name: value.to(dtype) for name, value in found.weights.items()}))
    assert f"is {dtype} instead of torch.float32; export it again" in refused(file)


@pytest.mark.parametrize("shape", [[1 << 63, 0], [1 << 62, 4, 0]])
def test_load_huge_shape_is_one_line(run, shape):
    entry = {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}
    header = json.dumps({"__metadata__": {"format": generator_file.FORMAT}, "net/a": entry}).encode()
    path = run / "g.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    assert "safetensors" in refused(path)
    with pytest.raises(pg.CheckpointError, match=r"safetensors|net/a cannot be read"):
        dict(reader._open_group(path.parent, {path.name: {"net/a": TensorLayout.whole(shape)}}))


def test_load_foreign_or_damaged_file_is_one_line(run, tmp_path):
    file, whole = run / "g.safetensors", (run / "g.safetensors").read_bytes()
    assert "does not exist; pass a run folder" in refused(tmp_path / "absent")
    assert "is a folder without config.yaml" in refused(tmp_path)
    for content in (b"", b"12345", pickle.dumps({"g": 1}), b"\xff" * 100, whole[:200], whole[:-9]):
        file.write_bytes(content)
        assert "safetensors" in refused(file)
    file.write_bytes(whole)
    assert "header is truncated or too long" in refused(spoil(file, header=1 << 40))
    save_file({"w": torch.ones(2)}, file)
    assert "weights of no known project (names like w)" in refused(file)
    file.write_bytes(whole[:-3] + b"\x77\x77\x77")
    assert "sha256" in refused(file)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"shape": "[1, 8"}, "incomplete or invalid"),
        ({"shape": "[1, -8, 8]"}, "incomplete or invalid"),
        ({"class_names": "[" * 100_000}, "incomplete or invalid"),
        ({"class_names": json.dumps(["a"] * 100_001)}, "incomplete or invalid"),
        ({"score": "3"}, "incomplete or invalid"),
        ({"config": "{model: {name: dcgan}, data: digits, loss: hinge, moddel: 1}"}, "(config):1: moddel: unknown key"),
        ({"config": "x" * (1 << 21)}, "(config):1: larger than 1 MiB"),
        ({"shape": "[3, 128, 128]"}, "checkpoint of another model"),
        ({"config": "{model: {name: dcgan, width: 999999}, data: digits, loss: hinge}"}, "checkpoint of another model"),
        (
            {"config": "{model: {name: mlp, g_widths: [4000000000, 4000000000]}, data: digits, loss: hinge}"},
            "invalid model",
        ),
        (
            {"config": f"{{model: {{name: mlp, latent: {10**30}}}, data: digits, loss: hinge}}"},
            "invalid model",
        ),
        (
            {"config": f"{{model: {{name: mlp, g_widths: {[8] * 50_000}}}, data: digits, loss: hinge}}"},
            "invalid model (more layers than there are weights)",
        ),
    ],
)  # fmt: skip
def test_load_invalid_metadata_is_one_line(run, metadata, said):
    assert said in refused(spoil(run / "g.safetensors", **metadata))


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """A module that leaves a trace when it is imported."""
    folder = tmp_path / "path" / "evil"
    folder.mkdir(parents=True)
    trace = tmp_path / "trace"
    (folder / "__init__.py").write_text(f"open({str(trace)!r}, 'w').close()\n")
    (folder / "nets.py").write_text("from paragan.models.dcgan import *\n")
    monkeypatch.syspath_prepend(str(tmp_path / "path"))
    yield trace
    for name in ("evil", "evil.nets"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("place", ["model", "loss", "strategy"])
def test_load_without_trust_never_imports_outside_code(run, evil, place):
    config = (run / "config.yaml").read_text()
    old = {"model": "name: dcgan", "loss": "name: nonsaturating", "strategy": "strategy: null"}[place]
    key, name = old.split(": ")
    assert old in config
    (run / "config.yaml").write_text(config.replace(old, f"{key}: evil.nets", 1))
    told = generator_file.safe_open(run / "g.safetensors", "pt").metadata()["config"]
    there = f'"{key}": ' + ("null" if name == "null" else f'"{name}"')
    assert there in told
    spoil(run / "g.safetensors", config=told.replace(there, f'"{key}": "evil.nets"', 1))
    for path in (run, run / "g.safetensors"):
        assert "evil.nets" in refused(path)
        for verb in (sample_command, export):
            with pytest.raises(pg.ConfigError, match=r"if you trust it, pass --trust \(in Python: trust=True\)"):
                verb(path)
    with pytest.raises(pg.ConfigError, match="pass --trust"):
        evaluate_run(run)
    assert not evil.exists()


def test_load_with_trust_imports_outside_code(run, evil):
    (run / "config.yaml").write_text((run / "config.yaml").read_text().replace("name: dcgan", "name: evil.nets"))
    (evil.parent / "path" / "evil" / "nets.py").write_text(Path(registry.find_source("models", "dcgan")).read_text())
    assert pg.load(run, trust=True).sample(1).tensor.isfinite().all()
    assert evil.exists()
