"""`paragan replay`: any step of a run, repeated and compared bit for bit."""

import json
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from paragan.checkpoint.reader import file_sha256
from paragan.cli.main import main
from paragan.config import read_recipe
from paragan.core.errors import ConfigError
from paragan.extensions.replay.replay_plan import plan_replay
from tests.golden.configurations import write_pairs

WORDS = (
    *("data.size=8", "model.width=4", "model.latent=8", "train.batch=8", "train.kimg=0.08", "train.threads=1"),
    *("every.log_steps=4", "every.save_kimg=0.024", "every.sample_kimg=0.04", "every.keep=2"),
    *("evaluation.features=null", "writers=[jsonl,console]"),
)
RUNS = {
    "synchronous": ("d.updates_per_step=2", "train.kimg=0.16", "penalties=[{name: r1, interval: 3}]"),
    "shared_fakes": ("scheme=shared_fakes", "augment=ada"),
    "extragradient": ("scheme=extragradient",),
    "skipping": ("scheme=skipping",),
    "asynchronous": ("scheme={name: asynchronous, staleness: 2, cached: 0.25}",),
    "pix2pix": ("data={name: paired, path: PAIRS, size: 16}", "model={name: pix2pix, width: 4}", "penalties=[l1]"),
}
DRAWING = """
from torch import nn


class Generator(nn.Module):
    latent, num_classes = 4, 0

    def __init__(self, options, shape, num_classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.1), nn.Tanh())

    def forward(self, z):
        return self.layers(z).view(-1, 1, 8, 8)


class Discriminator(nn.Module):
    def __init__(self, options, shape, num_classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 32), nn.Dropout(0.3), nn.SiLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.layers(x.flatten(1)).squeeze(1)
"""
ASYNCHRONOUS = ("scheme=asynchronous", "train.kimg=0.2", "penalties=[]", "every.log_steps=1")


@cache
def trained_run(name: str) -> Path:
    """A finished run, made once and copied."""
    folder = Path(mkdtemp())
    write_pairs(folder / "pairs")
    words = [word.replace("PAIRS", str(folder / "pairs")) for word in RUNS[name]]
    kept = [word for word in WORDS if not (word.startswith("model.") and any(w.startswith("model=") for w in words))]
    kept = [word for word in kept if not (word.startswith("data.size") and name == "pix2pix")]
    assert main(["train", "digits", *kept, *words, "--out", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture
def run(tmp_path, capsys):
    def copied(name: str) -> Path:
        shutil.copytree(trained_run(name), tmp_path / "run")
        capsys.readouterr()
        return tmp_path / "run"

    return copied


def rewrite(folder: Path, change) -> None:
    """Change lines of the record."""
    path = folder / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(change(line)) + "\n" for line in lines))


@pytest.mark.parametrize("name", RUNS)
def test_replay_of_any_scheme_is_equal(run, capsys, name):
    folder = run(name)
    assert main(["replay", str(folder), "--step", "7"]) == 0
    said = capsys.readouterr().out
    assert "are equal bit for bit" in said.splitlines()[-1]
    assert "losses of step" in said.splitlines()[-1]


def test_replay_of_two_threads_whose_networks_draw_is_equal(tmp_path, capsys):
    """G's thread calls a D with dropout, as D's own thread does: torch has one generator for both."""
    (tmp_path / "drawing.py").write_text(DRAWING)
    model = f"model={{name: {tmp_path / 'drawing.py'}}}"
    words = [word for word in WORDS if not word.startswith("model.")]
    out = str(tmp_path / "run")
    assert main(["train", "digits", *words, model, *ASYNCHRONOUS, "--out", out]) == 0
    capsys.readouterr()
    assert main(["replay", out, "--step", "22", "--trust"]) == 0
    assert "are equal bit for bit" in capsys.readouterr().out.splitlines()[-1]


def test_replay_begins_at_the_checkpoint_before_the_step(run, capsys):
    folder = run("shared_fakes")
    steps = sorted(int(path.name[5:]) for path in (folder / "checkpoints").iterdir())
    assert steps == [3, 9, 10]
    assert main(["replay", str(folder), "--step", "10"]) == 0
    said = capsys.readouterr().out
    assert "replaying steps 10 to 10 from checkpoint step-000000009" in said
    assert "replayed steps 10 to 10: losses of step 10 and all tensors of step 10 are equal bit for bit" in said
    assert main(["replay", str(folder), "--step", "9"]) == 0
    said = capsys.readouterr().out
    assert "replaying steps 4 to 9 from checkpoint step-000000003" in said
    assert "losses of step 8 and all tensors of step 9 are equal bit for bit" in said
    assert "the former replay was moved to" in said
    assert main(["replay", str(folder), "--step", "3"]) == 0
    assert "replaying steps 1 to 3 from the start" in capsys.readouterr().out


def test_replay_names_the_first_loss_that_differs(run, capsys):
    folder = run("extragradient")

    def change(line):
        if line["kind"] == "step" and line["step"] == 8:
            name = next(key for key in line if key.startswith("g/loss"))
            line[name] = float(np.nextafter(np.float32(line[name]), np.float32(9)))
        return line

    rewrite(folder, change)
    assert main(["replay", str(folder), "--step", "5"]) == 2
    said = capsys.readouterr().out
    assert "replayed steps 4 to 8; first difference: step 8: g/loss" in said


def test_replay_names_the_first_tensor_that_differs(run, capsys):
    folder = run("shared_fakes")
    checkpoint = folder / "checkpoints" / "step-000000010"
    tensors = load_file(checkpoint / "d.safetensors")
    name = next(name for name, value in tensors.items() if name.startswith("net/") and value.dim() > 1)
    tensors[name].view(-1)[0] = torch.nextafter(tensors[name].view(-1)[0], torch.tensor(9.0))
    save_file(tensors, checkpoint / "d.safetensors")
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest["files"]["d.safetensors"] = file_sha256(checkpoint / "d.safetensors")
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))
    assert main(["replay", str(folder)]) == 2
    assert f"first difference: step 10: d: {name} differs from the checkpoint" in capsys.readouterr().out


def test_replay_uses_rates_from_before_a_change(run, capsys):
    folder = run("shared_fakes")
    words = ["g.optimizer.lr=0.01", "train.kimg=0.16", "every.keep=9", "--change"]
    assert main(["train", str(folder), *words]) == 0
    capsys.readouterr()
    for step in (10, 15):
        assert main(["replay", str(folder), "--step", str(step), "--out", str(folder / f"replay-{step}")]) == 0
        assert "are equal bit for bit" in capsys.readouterr().out
    shutil.rmtree(folder / "checkpoints")
    assert main(["replay", str(folder), "--step", "11"]) == 2
    assert "g.optimizer.lr changed between them, at a resume; pass another --step" in capsys.readouterr().err


def test_replay_repeats_a_resumed_session_in_its_order(run, capsys):
    folder = run("asynchronous")
    assert main(["train", str(folder), "train.kimg=0.16", "every.keep=9"]) == 0
    capsys.readouterr()
    assert main(["replay", str(folder), "--step", "13"]) == 0
    said = capsys.readouterr().out
    assert "replaying steps 11 to 15 from checkpoint step-000000010" in said
    assert "losses of step 12 and all tensors of step 15 are equal bit for bit" in said
    shutil.rmtree(folder / "checkpoints" / "step-000000010")
    assert main(["replay", str(folder), "--step", "13"]) == 2
    assert "began at the checkpoint of step 10, which" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("used", "last"),
    [
        ({"g": [[1, 3, 3, 5]], "d": [[1, 2, 3, 4]]}, 3),  # G's update 2 used D's 3
        ({"g": [[1, 2, 3, 4]], "d": [[1, 3, 3, 5]]}, 3),  # D's update 2 used G's fakes of 3
    ],
)
def test_replay_ends_at_the_first_step_that_used_nothing_of_later_ones(tmp_path, used, last):
    lines = [{"kind": "start", "step": 0, "ranks": len(used["g"])}]
    lines += [{"kind": "step", "step": step, "kimg": step * 0.008} for step in range(1, 5)]
    lines.append({"kind": "delays", **{side: {"used": by_rank} for side, by_rank in used.items()}})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = read_recipe("digits", ["scheme={name: asynchronous, staleness: 1}"])
    assert plan_replay(tmp_path, config, 1).last == 1
    assert plan_replay(tmp_path, config, 2).last == last
    with pytest.raises(
        ConfigError, match=f"--step 4 is not in the recorded order of updates; pass a step of 1 to {last}"
    ):
        plan_replay(tmp_path, config, 4)  # a killed run: nothing after step 4 is recorded


def test_replay_warns_about_another_environment(run, capsys):
    folder = run("shared_fakes")
    environment = json.loads((folder / "environment.json").read_text())
    (folder / "environment.json").write_text(json.dumps(environment | {"torch": "1.0", "cpu": "NONE"}))
    main(["replay", str(folder), "--step", "10"])
    said = capsys.readouterr().err
    assert "warning: the run used torch 1.0 (now " in said and "cpu NONE (now " in said


def test_replay_skips_a_damaged_checkpoint(run, capsys):
    folder = run("shared_fakes")
    (folder / "checkpoints" / "step-000000009" / "g.safetensors").write_bytes(b"")
    assert main(["replay", str(folder), "--step", "10"]) == 0
    said = capsys.readouterr()
    assert "g.safetensors is missing or damaged" in said.err
    assert "losses of step 10 and all tensors of step 10 are equal bit for bit" in said.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--step", "11"), "--step 11 is not recorded; pass a step of 1 to 10"),
        (("--step", "0"), "--step"),
        (("--out", "full"), "holds checkpoints of something else; give another --out DIR"),
    ],
)
def test_replay_of_an_invalid_request_is_refused(run, capsys, monkeypatch, tmp_path, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full" / "checkpoints").mkdir(parents=True)
    assert main(["replay", str(run("shared_fakes")), *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("grid.shape=1x2", "model.name=mlp"), "paragan replay"),
        (("scheme=parameter_server",), "scheme.name=parameter_server cannot be replayed"),
    ],
)
def test_replay_of_a_grid_and_of_workers_that_do_not_wait_is_refused(tmp_path, words, said):
    with pytest.raises(ConfigError, match=said):
        plan_replay(tmp_path, read_recipe("digits", words), 1)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (None, "cannot read the record"),
        ("", "has no losses to compare with"),
        ('{"kind": "start", "step": []}\n', "has an invalid line"),
    ],
)
def test_replay_without_a_valid_record_is_refused(run, capsys, record, said):
    folder = run("shared_fakes")
    (folder / "metrics.jsonl").unlink()
    if record is not None:
        (folder / "metrics.jsonl").write_text(record)
    assert main(["replay", str(folder)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("holds", ["nothing", "a run", "files"])
def test_replay_follows_no_link_in_the_run_folder(run, capsys, tmp_path, holds):
    folder = run("shared_fakes")
    outside = tmp_path / "outside"
    outside.mkdir()
    if holds != "nothing":
        shutil.copytree(folder, outside, dirs_exist_ok=True)
    if holds == "files":
        (outside / "config.yaml").write_text("mine")
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    (folder / "replay").symlink_to(outside)
    assert main(["replay", str(folder)]) == 2
    assert "replay is a symbolic link, and nothing is written through links" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("other", ["itself", "a run of other data", "a run of another seed"])
def test_replay_sets_no_other_run_aside(run, capsys, tmp_path, other):
    folder = run("shared_fakes")
    target = folder if other == "itself" else Path(shutil.copytree(folder, tmp_path / "other"))
    config = target / "config.yaml"
    before, after = {
        "a run of other data": ("size: 8", "size: 16"),
        "a run of another seed": ("seed: 0", "seed: 1"),
    }.get(other, ("", ""))
    assert before in config.read_text()
    config.write_text(config.read_text().replace(before, after))
    assert main(["replay", str(folder), "--out", str(target)]) == 2
    assert f"{target} holds another run; give another --out DIR" in capsys.readouterr().err
    assert config.exists() and not list(target.parent.glob("*.old-*"))
