"""Runs on named tensors, balancers and frozen networks on an accelerator: the numbers of the CPU."""

import json

import pytest
import torch
from torch import nn

import paragan as pg
from paragan.cli.main import main
from paragan.metrics import log_mel_distance
from tests.laws import balanced_gan
from tests.laws.balanced_gan import OPTIONS, batch
from tests.unit.api import test_trainer
from tests.unit.api.test_tensor_sampler import SMALL, held_out

needs_one = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, needs_one])]


def test_run_on_the_device_that_is_here_equals_the_plain_loop_on_the_cpu(tmp_path):
    run = test_trainer.trainer(tmp_path).run()
    g, d = test_trainer.plain_loop(run)
    for side, net in (("g", g), ("d", d)):
        for name, value in net.state_dict().items():
            torch.testing.assert_close(test_trainer.saved(run, side)[f"net/{name}"], value, rtol=0, atol=1e-9)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", OPTIONS)
def test_balancers_equal_the_cpu(device, name, monkeypatch):
    here = balanced_gan.game(name)
    balanced_gan.play(here, range(10))
    make, prior = balanced_gan.make, balanced_gan.prior()
    on_device = {"device": torch.device(device)}
    monkeypatch.setattr(balanced_gan, "make", lambda side: make(side).to(device))
    monkeypatch.setattr(balanced_gan, "prior", lambda: pg.Prior(**{**vars(prior), **on_device}))
    monkeypatch.setattr(balanced_gan, "batch", lambda *where: moved(batch(*where), device))
    there = balanced_gan.game(name)
    balanced_gan.play(there, range(10))
    for a, b in ((there.g, here.g), (there.d, here.d)):
        for key, value in a.net.state_dict().items():
            torch.testing.assert_close(value.cpu(), b.net.state_dict()[key], rtol=0, atol=1e-9)


@pytest.mark.parametrize("device", DEVICES)
def test_frozen_network_moves_with_its_parent_and_has_its_own_format(device):
    parent = nn.ModuleDict({"head": nn.Linear(4, 2)})
    parent.inner = pg.Frozen(nn.Linear(4, 4), torch.bfloat16)
    parent.to(device)
    weight = parent.inner.network.weight
    assert (weight.device.type, weight.dtype) == (device, torch.bfloat16)
    x = torch.ones(3, 4, device=device, requires_grad=True)
    parent["head"](parent.inner(x).float()).sum().backward()
    assert x.grad is not None and weight.grad is None and list(parent.state_dict()) == ["head.weight", "head.bias"]


def test_scores_and_audio_on_the_device_that_is_here_are_those_of_the_cpu(tmp_path):
    out = tmp_path / "run"
    assert main(["train", *SMALL, "g.precision=fp32", "every.sample_kimg=0.004", "--out", str(out)]) == 0
    made = pg.load(out, device="cpu").net(audio=held_out(40))
    metric = log_mel_distance.Metric.from_reference().update(pg.SamplePairs(made.images, held_out(40)))
    score = json.loads((out / "score.json").read_text())
    assert score["log_mel_distance"] == pytest.approx(metric.compute(), rel=1e-3)
    assert main(["sample", str(out)]) == 0
    assert len(list((out / "samples").glob("*.wav"))) == 12


def moved(one: pg.Batch, device: str) -> pg.Batch:
    return pg.Batch(one.rows, {name: tensor.to(device) for name, tensor in one.tensors.items()})
