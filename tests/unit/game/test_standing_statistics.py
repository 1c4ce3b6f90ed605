"""Standing statistics of batch norm, beside a plain mean over batches."""

import pytest
import torch
from torch import nn

import paragan as pg
from paragan.cli.main import main
from paragan.core.errors import ConfigError
from paragan.game.sampling import with_standing_statistics
from paragan.layers.batch_norm import AffineBatchNorm


class Net(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.norm = norm
        self.dropout = nn.Dropout(0.5)

    def forward(self, z_BZ, y_B=None):
        return self.dropout(self.norm(self.linear(z_BZ)))


@pytest.mark.parametrize("norm", [AffineBatchNorm(3), nn.BatchNorm1d(3)])
def test_statistics_are_the_means_over_batches(norm):
    net = Net(norm).double()
    batches = [torch.randn(64, 4, dtype=torch.float64) for _ in range(5)]
    before = {name: value.clone() for name, value in net.state_dict().items()}
    copied = with_standing_statistics(net, [(z, None) for z in batches])
    hidden = [net.linear(z) for z in batches]
    held = copied.norm.norm if isinstance(norm, AffineBatchNorm) else copied.norm
    mean, var = (held.mean, held.var) if isinstance(norm, AffineBatchNorm) else (held.running_mean, held.running_var)
    torch.testing.assert_close(mean, torch.stack([h.mean(0) for h in hidden]).mean(0), rtol=0, atol=1e-12)
    torch.testing.assert_close(var, torch.stack([h.var(0) for h in hidden]).mean(0), rtol=0, atol=1e-12)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert not any(module.training for module in copied.modules())


def test_generator_without_batch_norm_is_refused():
    with pytest.raises(ConfigError, match="batch norm"):
        with_standing_statistics(nn.Linear(4, 3), [(torch.randn(8, 4), None)])


@pytest.mark.parametrize("out", ["sheet.png", "folder"])
def test_sample_with_standing_statistics_differs_and_repeats(tmp_path, out):
    run = tmp_path / "run"
    tiny = {"data.size": 8, "model.width": 4, "model.latent": 8, "train.batch": 16, "train.kimg": 0.064}
    pg.train("digits", {**tiny, "evaluation.features": None, "writers": ["jsonl"]}, out=run)
    contents = []
    for number, words in enumerate(([], ["--standing-stats", "128"], ["--standing-stats", "128"])):
        target = tmp_path / str(number) / out
        target.parent.mkdir()
        assert main(["sample", str(run), "--num", "4", "--out", str(target), *words]) == 0
        files = [target] if target.is_file() else sorted(target.glob("*.png"))
        contents.append([file.read_bytes() for file in files])
    assert contents[0] != contents[1] == contents[2]
