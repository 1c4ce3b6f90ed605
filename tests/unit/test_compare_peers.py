"""`benchmarks.compare`: adapters name what they need, absent peers have a reason, and both sides do equal work."""

from __future__ import annotations

import importlib
import json
import sys

import pytest
import torch
from torch import nn

from benchmarks import cellular_comparison
from benchmarks.compare import child, stand_ins, works
from benchmarks.compare.table import markdown, names
from benchmarks.step_loop import labelled
from tests import peer_checkouts


def adapter(peer):
    return importlib.import_module(f"benchmarks.compare.peers.{peer}")


RUNS = [(peer, work) for peer in peer_checkouts.FILES for work in adapter(peer).WORKS]


@pytest.fixture
def restored_imports(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_peers_of_the_issue_have_adapters():
    assert {"studiogan", "biggan_pytorch", "pix2pix", "lipizzaner", "ddp", "fabric", "accelerate"} <= set(names())


@pytest.mark.parametrize("peer", names())
def test_adapter_names_known_works(peer):
    assert adapter(peer).WORKS and set(adapter(peer).WORKS) <= set(works.WORKS)


@pytest.mark.parametrize("peer", [name for name in names() if adapter(name).SOURCE])
@pytest.mark.parametrize("folders", [[], ["nowhere"]])
def test_peer_without_checkout_is_not_run(peer, folders, tmp_path):
    words = [str(tmp_path / folder) for folder in folders]
    with pytest.raises(child.NotRun, match=f"^no .+; pass {peer}=PATH$"):
        child.prepare(peer, adapter(peer).WORKS[0], words)


@pytest.mark.usefixtures("restored_imports")
@pytest.mark.parametrize(("peer", "work"), RUNS)
def test_checkout_is_imported_and_takes_its_step(peer, work, tmp_path, capsys, monkeypatch):
    pixels = torch.arange(256, dtype=torch.uint8).repeat(5000, 4)[:, :784].reshape(5000, 1, 28, 28)
    monkeypatch.setattr(cellular_comparison, "images", lambda folder: pixels)
    peer_checkouts.write(peer, tmp_path)
    side, absent = child.prepare(peer, work, [str(tmp_path)])
    for _ in range(2):
        side.step()
    assert capsys.readouterr().out.split() == ["step", "step"]
    assert child.parameters(side) == [9, 4]
    assert side.version == "no revision"
    assert "torchvision" in absent


@pytest.mark.usefixtures("restored_imports")
def test_stand_in_provides_absent_packages_only():
    assert stand_ins.install(("absent_package", "json")) == ("absent_package",)
    import absent_package.below as below

    class Derived(below.Base):
        pass

    assert below.decorate(json.dumps) is json.dumps
    with pytest.raises(ImportError, match="stand-in"):
        Derived()
    assert json.loads("1") == 1
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("absent_package_too")


def test_child_reports_why_a_peer_fails(capfd):
    child.main("pix2pix", "pix2pix")
    assert json.loads(capfd.readouterr().out) == {"reason": "no checkout; pass pix2pix=PATH"}


@pytest.mark.parametrize("work", ["dcgan", "sngan", "sngan-unlabelled", "biggan", "biggan-brock", "pix2pix"])
def test_equal_settings_are_float32_and_not_channels_last(work):
    config = works.case(work).config(*works.variants(work)["equal"])
    assert (config.g.precision, config.d.precision, config.g.channels_last, config.d.channels_last) == (
        "fp32", "fp32", False, False,
    )  # fmt: skip
    assert config.d.updates_per_step == 1 and config.g.ema is None


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 1, dtype=torch.float64)

    def forward(self, x, y):
        return self.linear(x)


def test_wrapped_loop_equals_the_plain_loop():
    class Wrapper(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, *inputs):
            return self.net(*inputs)

    found, calls = [], []
    for wrap in (lambda net, adam: (net, adam), lambda net, adam: (Wrapper(net), adam)):
        torch.manual_seed(0)
        g, d = Critic(), Critic()
        g.linear = nn.Linear(2, 3, dtype=torch.float64)
        g.forward = lambda z, y, net=g.linear: net(z.double())

        def backward(loss):
            calls.append(loss)
            loss.backward()

        step = labelled(g, d, torch.rand(4, 3).double(), torch.zeros(4), 2, wrap, backward)
        step(), step()
        found.append([*g.parameters(), *d.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert len(calls) == 8


def test_table_has_ratios_and_reasons():
    ratio = {"median": 1.25, "low": 1.2, "high": 1.3}
    sides = {"theirs": {"version": "x 1", "parameters": [10, 2000], "stand_ins": ["wandb"]}}
    sides["ours"] = {"parameters": [10, 2000]}
    rows = [
        {"peer": "a", "work": "w", "what": "batch 1", **sides, "equal": ratio, "defaults": ratio},
        {"peer": "b", "work": "w", "what": "batch 1", "reason": "no checkout"},
    ]
    head, line, first, second = markdown(rows).splitlines()
    assert head.count("|") == line.count("|") == first.count("|") == second.count("|")
    assert "x 1 (stand-ins: wandb)" in first and "10 / 2,000" in first and "1.25 [1.20, 1.30]" in first
    assert "not run: no checkout" in second
