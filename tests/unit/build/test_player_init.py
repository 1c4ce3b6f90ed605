"""`g.init` and `d.init`: a player that starts from weights in safetensors files."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import paragan as pg
from paragan import build
from paragan.build.initial_weights import load_initial_weights
from paragan.checkpoint.reader import file_sha256
from paragan.cli.export import export
from paragan.cli.main import main
from paragan.config import read_recipe
from paragan.game.network import CalledNetwork
from paragan.game.sampling import generate_images
from tests.tiny_run import SMALL, TINY, newest, train

WORDS = (
    *TINY,
    *SMALL,
    "model.conditional=false",
    "g.precision=fp32",
    "d.precision=fp32",
    "writers=[jsonl,console]",
    "every.save_kimg=0",
)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A finished run with its exported G, and D's weights in a file, under `encoder.`."""
    folder = tmp_path_factory.mktemp("player-init") / "source"
    trainer = train(folder, "g.ema.half_life_kimg=0.01", "model.conditional=false")
    export(folder, out=folder / "g.safetensors")
    d = trainer.players["d"].net.state_dict()
    save_file({f"encoder.{name}": value.clone().contiguous() for name, value in d.items()}, folder / "d.safetensors")
    return folder


def started(folder, *words, log=lambda text: None):
    """A trainer at step 0, its config and the lines about its weights."""
    config = read_recipe("digits", [*WORDS, *words])
    trainer = build.trainer(config, folder, print, lambda: False)
    return trainer, *load_initial_weights(config, trainer, None, log)


def refused(folder, capsys, *words) -> str:
    """The one line of a command that starts nothing."""
    capsys.readouterr()
    assert main(["train", "digits", *WORDS, *words, "--out", str(folder / "run")]) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error
    assert not (folder / "run" / "checkpoints").exists()
    return error


def test_an_exported_generator_gives_its_images_at_step_0(tmp_path, source):
    trainer, config, (line,) = started(tmp_path, f"g.init={source / 'g.safetensors'}", "g.ema.half_life_kimg=1")
    g = trainer.players["g"]
    z = torch.randn(4, 8)
    expected = generate_images(CalledNetwork(module=pg.load(source / "g.safetensors").net), z, None)
    exported = load_file(source / "g.safetensors")
    for net in (g.net, g.ema.net):
        state = net.state_dict()
        assert exported.keys() == state.keys() and all(torch.equal(exported[name], state[name]) for name in state)
        # to rounding: on some processors convolutions of another memory format add in another order
        torch.testing.assert_close(generate_images(CalledNetwork(module=net), z, None), expected, rtol=0, atol=1e-5)
    assert (g.version, g.optimizer.state_dict()["state"]) == (0, {})
    assert config.g.init.sha256 == file_sha256(source / "g.safetensors")
    assert line == f"g.init from {source / 'g.safetensors'}: G all {len(g.net.state_dict())} tensors"


def test_a_discriminator_from_an_encoder_reports_only_its_head_as_new(tmp_path, source):
    weights = load_file(source / "d.safetensors")
    head = [name for name in weights if name.startswith("encoder.blocks.2")]
    save_file({name: value for name, value in weights.items() if name not in head}, tmp_path / "encoder.safetensors")
    words = [f"d.init={{path: {tmp_path / 'encoder.safetensors'}, prefix: encoder., partial: true}}"]
    said = []
    trainer, _, (line,) = started(tmp_path, *words, log=said.append)
    fresh = build.trainer(read_recipe("digits", WORDS), tmp_path, print, lambda: False).players["d"].net.state_dict()
    mine = trainer.players["d"].net.state_dict()
    new = {name.removeprefix("encoder.") for name in head}
    assert new and all(torch.equal(mine[name], fresh[name]) for name in new)
    assert all(torch.equal(mine[name], weights[f"encoder.{name}"]) for name in mine.keys() - new)
    first, *rows = said[0].splitlines()
    assert first == f"d.init: {len(mine) - len(new)} tensors loaded, {len(new)} not"
    assert {tuple(row.split()[:2]) for row in rows} == {("new", name) for name in new}
    assert all(f"{name} (missing in the file)" in line for name in new)


def test_several_files_make_up_one_player(tmp_path, source):
    weights = load_file(source / "d.safetensors")
    names = sorted(weights)
    halves = [tmp_path / "1.safetensors", tmp_path / "2.safetensors"]
    for path, some in zip(halves, (names[::2], names[1::2]), strict=True):
        save_file({name: weights[name] for name in some}, path)
    words = f"d.init={{path: [{halves[0]}, {halves[1]}], prefix: encoder.}}"
    trainer, config, _ = started(tmp_path, words)
    mine = trainer.players["d"].net.state_dict()
    assert all(torch.equal(value, weights[f"encoder.{name}"]) for name, value in mine.items())
    with pytest.raises(pg.CheckpointError, match="has changed: its sha256 is"):
        started(tmp_path, words, f"d.init.sha256={'0' * 64}")
    assert len(config.d.init.sha256) == 64


def test_a_player_has_other_weights_than_the_run(tmp_path, source):
    other = train(tmp_path / "other", "seed=3", "model.conditional=false")
    trainer, _, lines = started(tmp_path, f"init={source}", f"d.init={tmp_path / 'other'}")
    theirs = other.players["d"].net.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in trainer.players["d"].net.state_dict().items())
    assert [line.partition(" from ")[0] for line in lines] == ["init", "d.init"]
    assert "; D" not in lines[0]


@pytest.mark.parametrize(
    ("key", "path", "setting"), [("init", "", "{}"), ("d.init", "/d.safetensors", "{{path: {}, prefix: encoder.}}")]
)
def test_a_run_from_weights_resumes_without_them_bit_for_bit(tmp_path, source, key, path, setting):
    moved = shutil.copytree(source, tmp_path / "moved")
    words = [*WORDS, f"{key}={setting.format(f'{moved}{path}')}", "every.log_steps=1"]

    def run(folder, kimg):
        return main(["train", "digits", *words, f"train.kimg={kimg}", "--out", str(tmp_path / folder)])

    assert run("whole", 0.064) == 0
    assert run("parts", 0.032) == 0
    shutil.rmtree(moved)
    assert run("parts", 0.064) == 0
    for name in ("g.safetensors", "d.safetensors"):
        assert (newest(tmp_path / "parts") / name).read_bytes() == (newest(tmp_path / "whole") / name).read_bytes()
    record = (tmp_path / "parts" / "metrics.jsonl").read_text().splitlines()
    events = [line["text"] for line in map(json.loads, record) if line["kind"] == "event"]
    assert [text.startswith(f"{key} from {moved}{path}") for text in events] == [True]
    config = read_recipe(str(tmp_path / "parts" / "config.yaml"))
    init = config.init if key == "init" else config.d.init
    assert (init.path, len(init.sha256)) == (f"{moved}{path}", 64)


def test_weights_that_do_not_fit_are_one_line(tmp_path, source, capsys):
    weights = load_file(source / "d.safetensors")
    name = next(name for name in weights if name.endswith("linear.weight"))
    save_file({**weights, name: torch.zeros(3, 2)}, tmp_path / "shape.safetensors")
    save_file({**weights, "encoder.more": torch.zeros(3)}, tmp_path / "more.safetensors")
    prefix = "d.init.prefix=encoder."
    error = refused(tmp_path, capsys, f"d.init={tmp_path / 'shape.safetensors'}", prefix)
    assert (
        f"does not fit D: {name.removeprefix('encoder.')} (1x" in error
        and "here, 3x2 in the file); pass d.init.partial=true" in error
    )
    assert "more (missing in the network)" in refused(
        tmp_path, capsys, f"d.init={tmp_path / 'more.safetensors'}", prefix
    )
    error = refused(tmp_path, capsys, f"d.init={source / 'd.safetensors'}", "d.init.partial=true")
    assert "has no weight with the name and shape of one of D; names of the network are like" in error
    error = refused(tmp_path, capsys, f"d.init={source / 'd.safetensors'}", "d.init.prefix=body.")
    assert "has no tensor under the prefix 'body.'; its names begin with encoder" in error
    both = f"d.init={{path: [{source / 'd.safetensors'}, {tmp_path / 'more.safetensors'}]}}"
    assert "give one of the two files" in refused(tmp_path, capsys, both)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("wrap", [dict, lambda w: {"state_dict": w, "epoch": 3, "optimizer": {"state": {}}}])
def test_a_file_of_torch_is_read_like_safetensors(tmp_path, source, zipped, wrap):
    path = tmp_path / "d_00000100"
    weights = load_file(source / "d.safetensors")
    torch.save(wrap(weights), path, _use_new_zipfile_serialization=zipped)
    trainer, *_ = started(tmp_path, f"d.init={path}", "d.init.prefix=encoder.")
    mine = trainer.players["d"].net.state_dict()
    assert all(torch.equal(value, weights[f"encoder.{name}"]) for name, value in mine.items())


def test_other_paths_are_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.safetensors").write_text("no tensors")
    assert "g.init.path text.safetensors: not a safetensors file" in refused(
        tmp_path, capsys, "g.init=text.safetensors"
    )
    assert "g.init.path nowhere does not exist; give a run folder" in refused(tmp_path, capsys, "g.init=nowhere")
    assert "g.init needs weights to start from, which a grid does not support" in refused(
        tmp_path, capsys, "g.init=x", "grid.shape=1x1"
    )
    assert "g.init.path . holds no weights" in refused(tmp_path, capsys, "g.init={path: .}")
