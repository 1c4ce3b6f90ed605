"""The parts of strategies that need no other rank."""

import pytest
import torch
from torch import nn

from paragan import build
from paragan.config import read_recipe
from paragan.core.errors import ConfigError
from paragan.game.policy import Policy
from paragan.layers.spectral_norm import spectral_norm
from paragan.models import sngan
from paragan.optim.lamb import Optimizer as Lamb
from paragan.parallel.base.blocks import blocks
from paragan.parallel.base.fully_shard import _weights_on_meta, check_steps_shards
from paragan.parallel.base.grad_norm import clip, norm_of
from paragan.parallel.base.master_weights import MasterWeights
from paragan.parallel.ddp import unreachable_parameters, zero_of
from tests.tiny_run import train_and_read


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(3, 4)
        self.body = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))])
        self.tied = nn.ModuleList([nn.Linear(4, 4)])
        self.tied[0].weight = self.body[0].weight


def test_blocks_are_declared_or_the_members_of_lists():
    net = sngan.Generator(sngan.Options(width=4, conditional=False), (3, 32, 32))
    assert blocks(net) == list(net.blocks)
    mine = Nested()
    inner = mine.body[1]
    assert blocks(mine) == [inner[0], inner[2]]  # a weight that two blocks share keeps both of them whole


def test_weights_on_meta_leave_buffers_and_values_alone():
    with _weights_on_meta():
        net = nn.Sequential(spectral_norm(nn.Linear(3, 4)), nn.BatchNorm1d(4))
    assert all(parameter.is_meta for parameter in net.parameters())
    assert torch.equal(net[1].running_var, torch.ones(4))
    assert not nn.Linear(2, 2).weight.is_meta


def test_weights_that_no_path_reaches():
    used, unused, spare = (nn.Parameter(torch.ones(2)) for _ in range(3))
    frozen = nn.Parameter(torch.ones(2), requires_grad=False)
    loss = (used * 2).sum() + (used.detach() * unused.detach()).sum()
    assert [id(w) for w in unreachable_parameters([loss], [used, unused, frozen])] == [id(unused)]
    torch.autograd.backward([loss, zero_of([unused])])
    assert torch.equal(unused.grad, torch.zeros(2))
    assert spare.grad is None


def test_norm_of_low_precision_gradients_is_float32():
    grads = [torch.full((300,), 0.1, dtype=torch.bfloat16), torch.full((2, 2), 3.0, dtype=torch.bfloat16)]
    exact = torch.cat([g.double().flatten() for g in grads]).norm()
    assert norm_of(grads).dtype == torch.float32
    assert float(norm_of(grads)) == pytest.approx(float(exact), rel=1e-6)
    assert float(norm_of([])) == 0


def test_clipping_is_torchs():
    grads = [torch.randn(3, 4), torch.randn(5)]
    parameters = [nn.Parameter(torch.zeros_like(g)) for g in grads]
    for parameter, grad in zip(parameters, grads, strict=True):
        parameter.grad = grad.clone()
    expected = nn.utils.clip_grad_norm_(parameters, 0.7)
    mine = [g.clone() for g in grads]
    clip(mine, 0.7, norm := norm_of(mine))
    assert torch.equal(norm, expected)
    assert all(torch.allclose(a, p.grad, rtol=1e-6) for a, p in zip(mine, parameters, strict=True))


def stepped(weight: torch.Tensor, build, steps: int = 300):
    optimizer = build([("weight", weight)])
    for _ in range(steps):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


def test_masters_add_up_what_low_weights_would_lose():
    low = nn.Parameter(torch.full((4,), 1.0, dtype=torch.bfloat16))
    alone = nn.Parameter(low.detach().clone())
    sgd = Policy(kind=torch.optim.SGD, lr=1e-4).optimizer
    kept = stepped(low, lambda named: MasterWeights(dict(named), sgd, torch.device("cpu")))
    stepped(alone, sgd)
    assert torch.equal(alone.detach().float(), torch.ones(4))  # each step of 1e-4 is rounded away
    assert torch.allclose(kept.copies[0].detach(), torch.full((4,), 0.97), atol=1e-5)
    assert torch.equal(low.detach(), kept.copies[0].detach().bfloat16())


@pytest.mark.parametrize(
    ("kind", "name"), [(torch.optim.Muon, "Muon"), (torch.optim.Adafactor, "Adafactor"), (Lamb, "lamb")]
)
def test_optimisers_of_whole_weights_are_refused_where_weights_are_cut(kind, name):
    with pytest.raises(ConfigError, match=f"optimizer {name} needs whole weights, which strategy 'zero3' shards"):
        check_steps_shards(Policy(kind=kind), "zero3")


@pytest.mark.parametrize("model", ["dcgan", "mlp", "sngan"])
def test_shipped_models_train_under_pure(model, tmp_path):
    words = ["g.precision=pure", "d.precision=pure", f"model={model}", *SMALL[model], "train.kimg=0.128", *QUIET]
    trainer = build.trainer(read_recipe("digits", words), tmp_path, print, lambda: False)
    start = [copy.detach().clone() for copy in trainer.gan.d.optimizer.copies]
    reports, _ = train_and_read(trainer)
    assert len(reports) == 2
    assert next(trainer._sample()).x_BCHW.isfinite().all()
    assert all(torch.tensor(list(report.values())).isfinite().all() for report in reports)
    assert {p.dtype for p in trainer.gan.g.net.parameters()} == {torch.bfloat16, torch.float32} - NOT_IN[model]
    moved = zip(trainer.gan.d.optimizer.copies, start, strict=True)
    assert max(float((a.detach() - b).abs().max()) for a, b in moved) > 1e-5


QUIET = ["every.sample_kimg=0", "every.save_kimg=0", "evaluation.features=null"]
SMALL = {"dcgan": ["model.width=8"], "mlp": [], "sngan": ["model.width=8"]}
NOT_IN = {"dcgan": set(), "mlp": {torch.float32}, "sngan": set()}  # mlp has no norm
