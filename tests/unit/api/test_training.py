"""`pg.train`: a whole run folder from Python, with networks of a recipe or from memory, and the run to read it by."""

import json
import os
import signal
import threading

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import paragan as pg
from paragan.cli.main import main
from tests.tiny_run import newest

TINY = {
    "data.size": 8, "train.batch": 16, "train.kimg": 0.128, "every.save_kimg": 0, "every.sample_kimg": 0.064,
    "every.log_steps": 1, "evaluation.features": None, "g.ema.half_life_kimg": 0.02,
}  # fmt: skip
SMALL = {"model.width": 4, "model.latent": 8}


class Painter(nn.Module):
    latent = 6

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 64)

    def forward(self, z):
        return torch.tanh(self.layer(z)).view(-1, 1, 8, 8)


class Critic(nn.Module):
    stop_at = 0  # calls with gradients

    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Linear(64, 1), 0

    def forward(self, x):
        self.calls += torch.is_grad_enabled() and len(x) > 4  # the trial has up to 4 samples
        if self.calls == type(self).stop_at > 0:
            type(self).stop_at = 0
            os.kill(os.getpid(), signal.SIGINT)
        return self.layer(x.flatten(1))


class StoppedCritic(Critic):
    pass


def from_memory(folder, discriminator=Critic, **settings):
    return pg.train("digits", {**TINY, **settings}, out=folder, generator=Painter, discriminator=discriminator)


@pytest.fixture(scope="module")
def painted(tmp_path_factory):
    """A finished run of networks from memory that is only read."""
    return from_memory(tmp_path_factory.mktemp("painted") / "run")


def test_train_writes_the_whole_run_folder_and_returns_the_run(tmp_path):
    run = pg.train("digits", {**TINY, **SMALL}, out=tmp_path / "run")
    there = {path.name for path in run.folder.iterdir()}
    assert there >= {"config.yaml", "metrics.jsonl", "samples", "report.html", "exit.json", "checkpoints"}
    assert json.loads((run.folder / "exit.json").read_text())["code"] == 0
    assert run.config.train.kimg == 0.128
    assert [line["step"] for line in run.history] == list(range(1, 9))
    assert run.is_finished
    assert [line["step"] for line in run.records("checkpoint")] == [8]
    assert run.sample(3, labels="7").labels == (7, 7, 7)
    assert run.sample(3, seed=1).tensor.equal(pg.load(run.folder).sample(3, seed=1).tensor)
    assert main(["sample", str(run.folder)]) == 0


def test_history_of_a_record_that_a_kill_cut_short_has_the_whole_lines(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"kind": "step", "step": 1}\n{"kind": "step", "st')
    assert pg.Run(tmp_path).history == [{"kind": "step", "step": 1}]
    with pytest.raises(pg.CheckpointError, match="was the run folder moved"):
        pg.Run(tmp_path / "moved").records("step")


@pytest.mark.usefixtures("quick_judge")
def test_scores_of_a_run_are_the_newest(tmp_path):
    run = pg.train(
        "digits", {**TINY, **SMALL, "evaluation.features": "judge", "evaluation.num_images": 50}, out=tmp_path
    )
    assert run.score["fd[judge]"] == run.records("score")[-1]["fd[judge]"]
    assert "num_images" not in run.score
    assert pg.evaluate(run.folder).score.metrics == run.score
    assert pg.evaluate(run.folder, seed=1).score.metrics != run.score


def test_networks_from_memory_are_recorded_by_where_they_came_from(painted):
    model = painted.config.model
    assert model.name == "from_memory"
    assert model.options.generator == f"{__name__}.Painter"
    assert model.options.discriminator == f"{__name__}.Critic"
    assert (model.options.latent, model.options.conditional) == (6, False)


@pytest.mark.parametrize("given", [Painter, Painter()], ids=["class", "object"])
def test_a_run_from_memory_loads_with_its_generator(painted, given):
    generator = pg.load(painted.folder, generator=given, device="cpu")
    assert generator.sample(4).tensor.equal(painted.sample(4).tensor)
    assert generator.num_classes == 0
    saved = load_file(newest(painted.folder) / "g.safetensors")
    assert torch.equal(generator.net.state_dict()["net.layer.weight"], saved["ema/net.layer.weight"])


def test_a_run_from_memory_without_its_generator_is_one_line(painted, capsys):
    with pytest.raises(pg.ConfigError) as told:
        pg.load(painted.folder)
    assert str(told.value).startswith(f"{painted.folder}: model.name is from_memory")
    assert f"{__name__}.Painter" in str(told.value) and "generator=" in str(told.value)
    assert "\n" not in str(told.value)
    for words in (["sample"], ["eval"], ["export"]):
        assert main([*words, str(painted.folder)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_generator_for_a_run_of_a_recipe_is_refused(tmp_path):
    pg.train("digits", {**TINY, **SMALL}, out=tmp_path / "run")
    with pytest.raises(pg.ConfigError, match=r"names model\.name=dcgan; leave generator out"):
        pg.load(tmp_path / "run", generator=Painter)


def test_a_stopped_run_from_memory_resumes_bit_for_bit(tmp_path, monkeypatch, painted):
    monkeypatch.setattr(Critic, "stop_at", 9)
    stopped_run = from_memory(tmp_path / "run")
    assert not stopped_run.is_finished
    assert json.loads((tmp_path / "run" / "exit.json").read_text())["code"] == 85
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    stopped = newest(tmp_path / "run").name
    assert "step-000000000" < stopped < "step-000000008"
    monkeypatch.setattr(Critic, "stop_at", 0)
    run = stopped_run.resume()
    assert run.is_finished
    for name in ("g.safetensors", "d.safetensors", "state.json"):
        a, b = (newest(one.folder) / name for one in (run, painted))
        assert a.read_bytes() == b.read_bytes(), name


def test_another_class_does_not_resume_the_run(painted):
    with pytest.raises(pg.CheckpointError, match=r"model\.discriminator.*fresh=True"):
        from_memory(painted.folder, StoppedCritic)


OBJECTS = {
    "loss": (pg.Loss(abs, abs), "loss=…"),
    "penalties": ([object()], "terms=[…]"),
    "model": (nn.Linear(2, 2), "generator, discriminator"),
    "data": (torch.ones(3), "data)"),
}


@pytest.mark.parametrize("key", OBJECTS)
def test_objects_in_settings_are_refused_with_the_argument_of_trainer(key, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    value, argument = OBJECTS[key]
    with pytest.raises(pg.ConfigError, match=f"^settings: {key} is a ") as refused:
        pg.train("digits", {key: value})
    assert "paragan.Trainer(" in str(refused.value) and argument in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("digits", {"train.batch": "x"}), "train.batch: must be an integer >= 1 and <= 1048576, not 'x'"),
        (("digits", {"train.batch": "16"}), "train.batch: must be an integer >= 1 and <= 1048576, not '16'"),
        (("digits", {"seed": object()}), "settings: seed is a object; pass a number, text, True"),
        (("digits", {"train.kimg": float("nan")}), "settings: train.kimg is nan; pass a finite number"),
        (("digits", {"devices": 2}), "devices=2 needs as many processes; start the program with `torchrun"),
        (("nothing", {}), "unknown recipe 'nothing'"),
        ((pg.config.read_recipe("digits"), {"seed": 1}), "settings cannot be added to a RunConfig"),
    ],
)
def test_settings_that_make_no_run_are_one_line(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pg.ConfigError) as told:
        pg.train(*arguments)
    assert str(told.value).startswith(said)
    assert "\n" not in str(told.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("networks", "said"),
    [
        ({"generator": Painter}, "discriminator is missing; pass both"),
        ({"discriminator": Critic}, "generator is missing; pass both"),
        ({"generator": nn.Linear, "discriminator": Critic}, "Linear() raised TypeError"),
    ],
)
def test_networks_that_make_no_pair_are_one_line(networks, said, tmp_path):
    with pytest.raises(pg.ConfigError) as told:
        pg.train("digits", TINY, out=tmp_path / "run", **networks)
    assert str(told.value).startswith(said)
    assert not (tmp_path / "run").exists()


def test_a_config_of_a_run_folder_resumes_that_run_and_imports_no_code_unless_trusted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pg.train("digits", {**TINY, **SMALL, "train.kimg": 0.032})
    run = pg.train("runs/digits/config.yaml", {"train.kimg": 0.064})
    assert run.records("checkpoint")[-1]["step"] == 4
    written = run.folder / "config.yaml"
    written.write_text(written.read_text().replace("name: dcgan", "name: nothing.nets"))
    with pytest.raises(pg.ConfigError, match="trust=True"):
        pg.train(str(written))
    with pytest.raises(pg.ConfigError, match=r"cannot import 'nothing\.nets': no module named 'nothing'"):
        pg.train(str(written), trust=True)


def test_networks_from_memory_are_refused_for_a_grid(tmp_path):
    with pytest.raises(pg.ConfigError, match=r"grid .* networks from Python"):
        from_memory(tmp_path / "run", **{"grid.shape": "1x1"})


@pytest.mark.parametrize("device", ["nowhere", "cpu:x", 3.5])
def test_a_device_that_cannot_be_used_is_one_line(painted, device):
    with pytest.raises(pg.ConfigError) as told:
        pg.load(painted.folder, generator=Painter, device=device)
    assert str(told.value).startswith(f"device {str(device)!r} cannot be used")
    assert "\n" not in str(told.value)


def test_values_of_every_kind_become_settings(tmp_path):
    images = tmp_path / "images.npz"
    np.savez(images, images=np.zeros((40, 8, 8), np.uint8), labels=np.arange(40) % 10)
    settings = {
        **{key: value for key, value in TINY.items() if key != "data.size"},
        **SMALL,
        "data": {"name": "npz", "path": images, "held_out": 0.25},
        "g.optimizer.arguments.betas": (0.0, 0.9),
        "g.ema": None,
    }
    run = pg.train("digits", settings, out=tmp_path / "run")
    assert run.config.g.optimizer.arguments == {"betas": [0.0, 0.9]} and run.config.g.ema is None
    assert (run.config.data.options.path, run.config.data.options.held_out) == (str(images), 0.25)


def test_train_in_another_thread_leaves_signals_to_the_program(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    runs = []
    thread = threading.Thread(
        target=lambda: runs.append(pg.train("digits", {**TINY, **SMALL, "train.kimg": 0.016}, out=tmp_path))
    )
    thread.start()
    thread.join(120)
    assert runs[0].is_finished
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_raises_and_leaves_no_handler(tmp_path, monkeypatch):
    def interrupt_twice(*inputs):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Critic, "forward", interrupt_twice)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        from_memory(tmp_path / "run")
    assert signal.getsignal(signal.SIGINT) is before
