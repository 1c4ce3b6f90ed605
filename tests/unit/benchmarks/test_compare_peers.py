"""`benchmarks.compare`: absent peers have a reason, a checkout takes its step, and the table has both."""

import importlib
import sys

import pytest

from benchmarks.compare import child
from benchmarks.compare.table import markdown, names

# Stands in for the checkout: the names that the adapter uses, and nothing else.
PIX2PIX = """
import torch, torchvision
class Pix2PixModel:
    def __init__(self, options):
        self.options, self.steps = options, 0
        self.netG, self.netD = torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)
    def set_input(self, values):
        self.shape = values["A"].shape
    def optimize_parameters(self):
        assert self.shape == (1, 3, 256, 256) and self.options.lambda_L1 == 100
        print("step")
"""


def adapter(peer):
    return importlib.import_module(f"benchmarks.compare.peers.{peer}")


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
def test_checkout_is_imported_and_takes_its_step(tmp_path, capsys):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "pix2pix_model.py").write_text(PIX2PIX)
    side, absent = child.prepare("pix2pix", "pix2pix", [str(tmp_path)])
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
