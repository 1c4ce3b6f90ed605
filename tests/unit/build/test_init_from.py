"""`init=RUN`: a run that starts from another run's weights, of the same sizes or in part."""

import shutil
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import paragan as pg
from paragan import build
from paragan.build.initial_weights import load_initial_weights
from paragan.checkpoint.manifest import MANIFEST
from paragan.checkpoint.reader import file_sha256
from paragan.checkpoint.writer import CheckpointWriter
from paragan.cli.export import export
from paragan.cli.main import main
from paragan.config import read_recipe
from tests.tiny_run import SMALL, TINY, newest, train

WORDS = (*TINY, *SMALL, "g.precision=fp32", "d.precision=fp32", "writers=[jsonl,console]", "every.save_kimg=0")
quiet = partial(print, end="")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A finished run with an average, in a folder that is only read."""
    folder = tmp_path_factory.mktemp("init") / "source"
    train(folder, "g.ema.half_life_kimg=0.01", "model.conditional=true")
    export(folder, out=folder / "g.safetensors")
    return folder


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """Images of three classes."""
    folder = tmp_path_factory.mktemp("images")
    for number in range(48):
        path = folder / "abc"[number % 3] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        noise = np.random.default_rng(number).integers(0, 256, (8, 8), dtype=np.uint8)
        Image.fromarray(noise).save(path)
    return folder


def started(folder, path, *words):
    """A trainer at step 0 with those weights, its config and the line about them."""
    config = read_recipe("digits", [*WORDS, "model.conditional=true", *words, f"init={path}"])
    trainer = build.trainer(config, folder, quiet, lambda: False)
    config, (line,) = load_initial_weights(config, trainer, None, quiet)
    return trainer, config, line.removeprefix("init from ")


def tensors(folder, side, prefix):
    return dict(CheckpointWriter(folder=folder / "checkpoints").newest().groups[side].under(prefix))


def same(net, saved):
    return all(torch.equal(value, saved[name]) for name, value in net.state_dict().items())


def test_both_networks_and_the_average_are_those_of_the_source(tmp_path, source):
    trainer, config, line = started(tmp_path, source, "g.ema.half_life_kimg=1")
    g, d = trainer.players["g"], trainer.players["d"]
    assert same(g.net, tensors(source, "g", "net/")) and same(d.net, tensors(source, "d", "net/"))
    assert same(g.ema.net, tensors(source, "g", "ema/"))
    assert not same(g.net, tensors(source, "g", "ema/"))
    assert (g.version, g.images, int(g.updates), trainer.clock.step) == (0, 0, 0, 0)
    assert g.optimizer.state_dict()["state"] == {}
    assert config.init.sha256 == file_sha256(newest(source) / MANIFEST)
    num_g, num_d = len(g.net.state_dict()), len(d.net.state_dict())
    assert line == f"{source}, step 4: G all {num_g} tensors and the average; D all {num_d} tensors"


def test_an_exported_file_gives_the_generator_alone(tmp_path, source):
    trainer, config, line = started(tmp_path, source / "g.safetensors", "g.ema.half_life_kimg=1")
    g, d = trainer.players["g"], trainer.players["d"]
    assert same(g.net, tensors(source, "g", "ema/")) and same(g.ema.net, tensors(source, "g", "ema/"))
    untouched = build.trainer(read_recipe("digits", [*WORDS, "model.conditional=true"]), tmp_path, quiet, lambda: False)
    assert same(d.net, untouched.players["d"].net.state_dict())
    assert line.endswith("; D as initialised")
    assert config.init.sha256 == file_sha256(source / "g.safetensors")


def test_other_classes_keep_their_initial_embeddings(tmp_path, source, kinds):
    words = ["data=folder", f"data.path={kinds}", "data.size=8", "data.channels=1"]
    trainer, _, line = started(tmp_path, source, *words)
    plain = read_recipe("digits", [*WORDS, "model.conditional=true", *words])
    fresh = build.trainer(plain, tmp_path, quiet, lambda: False).players["g"].net.state_dict()
    saved = tensors(source, "g", "net/")
    mine = trainer.players["g"].net.state_dict()
    per_class = {name for name, value in mine.items() if saved[name].shape != value.shape}
    assert per_class and all(torch.equal(mine[name], fresh[name]) for name in per_class)
    assert all(torch.equal(mine[name], saved[name]) for name in mine.keys() - per_class)
    name = next(name for name in mine if name in per_class)
    here, there = ("x".join(map(str, value[name].shape)) for value in (mine, saved))
    taken = f"G {len(mine) - len(per_class)} of {len(mine)} tensors and the average, as initialised: "
    assert f"{taken}{name} ({here} here, {there} in the file)" in line


def test_low_precision_weights_and_the_copies_that_are_stepped_agree(tmp_path, source):
    groups = 'g.optimizer.groups={match: "*.bias", lr: 1e-3}'
    trainer, *_ = started(tmp_path, source, "g.precision=pure", groups)
    g, saved = trainer.players["g"], tensors(source, "g", "net/")
    copies = dict(zip((name for name, _ in g.net.named_parameters()), g.optimizer.copies, strict=True))
    assert all(torch.equal(value, saved[name]) for name, value in copies.items())


def test_a_source_that_has_changed_is_refused(tmp_path, source):
    with pytest.raises(pg.CheckpointError, match="has changed: its sha256 is"):
        started(tmp_path, f"{{path: {source}, sha256: {'0' * 64}}}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model=mlp", "model.g_widths=[9]", "model.d_widths=[9]"], "has no weight with the name and shape of one in"),
        (["init=nowhere"], "init.path nowhere does not exist; give a run folder"),
        (["init={path: .}"], "init.path . holds no weights; give a run folder with a checkpoint"),
        (["init=3"], "init: must be a map of path, sha256, not 3"),
        (["init.sha256=x"], "init.path is required; pass init.path=VALUE"),
    ],
)
def test_weights_that_cannot_be_taken_are_one_line(tmp_path, source, words, said, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    init = [] if any(word.startswith("init") for word in words) else [f"init={source}"]
    small = [word for word in WORDS if "model" not in word or "model=mlp" not in words]
    capsys.readouterr()
    assert main(["train", "digits", *small, *init, *words, "--out", "run"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_fresh_does_not_move_its_own_source(tmp_path, source, capsys):
    run = shutil.copytree(source, tmp_path / "run")
    capsys.readouterr()
    assert main(["train", "digits", *WORDS, f"init={run}", "--out", str(run), "--fresh"]) == 2
    assert "is in the run folder, which --fresh moves" in capsys.readouterr().err
    assert (run / "checkpoints").exists()


def test_a_damaged_newest_checkpoint_is_passed_over(tmp_path, source):
    run = shutil.copytree(source, tmp_path / "run")
    later = shutil.copytree(newest(run), run / "checkpoints" / "step-000000009")
    (later / "g.safetensors").write_bytes(b"?")
    *_, line = started(tmp_path, run)
    assert ", step 4: G all" in line


def test_no_code_that_the_source_names_is_imported(tmp_path, source):
    run = shutil.copytree(source, tmp_path / "run")
    (run / "config.yaml").write_text("model: {name: nothing.like.it}\n")
    *_, line = started(tmp_path, run)
    assert ": G all" in line


@pytest.mark.parametrize("side", ["g", "d"])
@pytest.mark.parametrize("ending", ["pth", "safetensors"])
@pytest.mark.parametrize("own", ["", "d.init"])
def test_init_of_one_network_is_for_the_player_that_it_fits_alone(tmp_path, side, ending, own):
    """At 64 px a bias of G and one of D have the same name and shape."""
    size = ("data={name: synthetic, kind: shapes, size: 64}", "model={name: sngan, width: 2, conditional: false}")
    config = read_recipe("digits", [*WORDS, *size])
    trainer = build.trainer(config, tmp_path, quiet, lambda: False)
    state = {name: value.contiguous() + 1 for name, value in trainer.players[side].net.state_dict().items()}
    path = tmp_path / f"net.{ending}"
    (torch.save if ending == "pth" else save_file)(state, path)
    if own:
        torch.save(trainer.players["d"].net.state_dict(), tmp_path / "d.pth")
    config = read_recipe("digits", [*WORDS, *size, f"init={path}", *([f"{own}={tmp_path / 'd.pth'}"] if own else [])])
    trainer = build.trainer(config, tmp_path, quiet, lambda: False)
    if own and side == "d":
        with pytest.raises(pg.CheckpointError, match="has no weight with the name and shape"):
            load_initial_weights(config, trainer, None, quiet)
        return
    _, lines = load_initial_weights(config, trainer, None, quiet)
    other = {"g": "D", "d": "G"}[side]
    assert f"{side.upper()} all {len(state)} tensors" in lines[0]
    assert own or f"{other} as initialised" in lines[0]
    assert same(trainer.players[side].net, state)
