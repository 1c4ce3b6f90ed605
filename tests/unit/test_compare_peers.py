"""`benchmarks.compare`: adapters name what they need, absent peers have a reason, and both sides do equal work."""

from __future__ import annotations

import importlib
import sys

import pytest
import torch

from benchmarks import cellular_comparison
from benchmarks.compare import child
from benchmarks.compare.table import markdown, names
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
