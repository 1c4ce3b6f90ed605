"""`Frozen`: a network inside a player that never trains and is no part of the player."""

import copy

import pytest
import torch
from torch import Tensor, nn

import paragan as pg
from paragan.core.dist import ALONE
from paragan.core.network_factory import NetworkFactory
from paragan.game.network import CalledNetwork, Calling
from paragan.layers.batch_norm import AffineBatchNorm
from paragan.layers.frozen import register_frozen_networks
from paragan.layers.random import uses_random_numbers
from paragan.layers.update_once import begin_update, mixes_samples
from paragan.parallel import MemoryOptions, none
from paragan.parallel.base.fully_shard import _weights_on_meta

SHAPE = (1, 4, 4)


def extractor(draw: int = 0) -> nn.Module:
    """Norms of three kinds and dropout, with statistics of their own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draw)
        conv = pg.spectral_norm(nn.Conv2d(1, 2, 3, padding=1))
        net = nn.Sequential(conv, nn.BatchNorm2d(2), AffineBatchNorm(2), nn.Tanh(), nn.Dropout(0.5), nn.Flatten())
        net[1].running_mean.normal_()
        net[2].norm.var.uniform_(1, 2)
    return net


class Net(nn.Module):
    """A trained head on frozen features, for either player."""

    weight_init = "torch"

    def __init__(self, frozen: nn.Module, outputs: int, dtype=torch.float64) -> None:
        super().__init__()
        self.features, self.outputs = frozen, outputs
        self.head = nn.Linear(32, outputs, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        h = self.head(self.features(x.view(-1, *SHAPE)))
        return h.squeeze(1) if self.outputs == 1 else h.tanh().view(-1, *SHAPE)


def frozen(draw: int = 0) -> pg.Frozen:
    return pg.Frozen(extractor(draw), torch.float64)


def values(net: pg.Frozen) -> list[Tensor]:
    return [value.clone() for value in net.network.state_dict().values()]


def test_a_frozen_network_is_no_part_of_its_parent():
    inner = frozen()
    net = Net(inner, 1)
    assert {name for name, _ in net.named_parameters()} == net.state_dict().keys() == {"head.weight", "head.bias"}
    assert not list(net.buffers())
    assert not mixes_samples(net) and not uses_random_numbers(net)
    begin_update(net)
    assert not any(getattr(module, "update_due", False) for module in inner.network.modules())
    assert copy.deepcopy(net).features.network is inner.network


def test_a_frozen_network_stays_in_evaluation_and_its_statistics_stay():
    inner = frozen()
    before = values(inner)
    net = Net(inner, 1).train().requires_grad_(True)
    net(torch.randn(4, 16, dtype=torch.float64)).sum().backward()
    assert not any(module.training for module in inner.network.modules())
    assert not any(weight.requires_grad for weight in inner.network.parameters())
    assert all(map(torch.equal, values(inner), before))


def test_gradients_flow_through_a_frozen_network_to_its_input():
    plain = extractor().double().eval()
    x = torch.randn(3, *SHAPE, dtype=torch.float64, requires_grad=True)
    (mine,) = torch.autograd.grad(frozen()(x).sin().sum(), x)
    (theirs,) = torch.autograd.grad(plain(x).sin().sum(), x)
    assert mine.abs().max() > 0 and torch.equal(mine, theirs)


@pytest.mark.parametrize(("given", "inside"), [(torch.float32, torch.bfloat16), (torch.float64, torch.float32)])
def test_a_frozen_network_computes_in_its_dtype_whatever_is_around(given, inside):
    seen = []
    layer = nn.Linear(4, 4)
    layer.register_forward_hook(lambda module, inputs, output: seen.append((inputs[0].dtype, output.dtype)))
    net = pg.Frozen(layer, inside)
    out = CalledNetwork(module=net, calling=Calling(torch.bfloat16))(torch.randn(2, 4, dtype=given))
    assert seen == [(inside, inside)]
    assert net.double().dtype is inside and layer.weight.dtype is inside
    assert out.dtype is given


def test_a_frozen_network_keeps_its_values_where_the_parent_is_built_without():
    inner = frozen()
    before = values(inner)
    with torch.device("meta"):
        net = Net(inner, 1)
    net.to_empty(device="cpu")
    with _weights_on_meta():
        other = Net(inner, 1)
    other.to(torch.device("meta"))
    assert all(map(torch.equal, values(inner), before))
    with torch.device("meta"), pytest.raises(pg.ConfigError, match="Frozen: Linear has weights on the meta device"):
        pg.Frozen(nn.Linear(2, 2))


@pytest.mark.parametrize("net", [frozen(), Net(frozen(), 1).requires_grad_(False)], ids=["Frozen", "Net"])
def test_a_player_without_a_weight_to_train_is_one_line(net):
    with pytest.raises(pg.ConfigError, match=r"^d: (Frozen|Net) has no weight to train: all are frozen.*[^\n]+$"):
        pg.Player(side=pg.Side.D, net=net)


def test_recomputed_blocks_with_frozen_networks_have_the_same_gradients():
    def built(recompute: bool) -> nn.Module:
        torch.manual_seed(3)
        block = nn.Sequential(nn.Linear(16, 16), nn.Unflatten(1, SHAPE), frozen(2), nn.Linear(32, 16)).double()
        strategy = none.Strategy(memory=MemoryOptions(recompute=recompute))
        return strategy.prepare(NetworkFactory(lambda: nn.Sequential(block, nn.Tanh())), ALONE)

    x = torch.randn(5, 16, dtype=torch.float64)
    found = [torch.autograd.grad(net(x).square().sum(), list(net.parameters())) for net in map(built, (False, True))]
    assert all(map(torch.equal, *found))


class Low(nn.Module):
    """A generator of the points from what is low."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(16, 16)

    def forward(self, low: Tensor) -> Tensor:
        return self.last(low).view(-1, *SHAPE)


class Judge(Net):
    def forward(self, image: Tensor) -> Tensor:
        return super().forward(image)


def trainer(folder, draw: int = 0, kimg: float = 0.016, width: int = 0, of_term: int = 3) -> pg.Trainer:
    """A run of four steps with a frozen backbone of D and a perceptual term."""
    torch.manual_seed(0)
    inner = extractor(draw)
    inner.register_buffer("unused", torch.zeros(width))
    data = {"image": torch.randn(16, *SHAPE), "low": torch.randn(16, 16)}
    settings = {"train.batch": 4, "train.kimg": kimg, "d.ema.half_life_kimg": 0.01, "every.sample_kimg": 0}
    terms = (pg.PerceptualLoss(network=pg.Frozen(extractor(of_term)), layers=["0"], weight=0.5),)
    nets = Low(), Judge(pg.Frozen(inner, torch.float32), 1, torch.float32)
    return pg.Trainer(*nets, data, settings=settings, terms=terms, out=folder)


def saved(folder) -> dict[str, bytes]:
    newest = max((folder / "checkpoints").glob("step-*"))
    return {path.name: path.read_bytes() for path in newest.glob("*.safetensors")}


def test_a_run_with_frozen_networks_resumes_bit_for_bit_and_its_checkpoint_does_not_grow(tmp_path):
    trainer(tmp_path / "whole").run()
    trainer(tmp_path / "parts", kimg=0.008).run()
    trainer(tmp_path / "parts").run()
    trainer(tmp_path / "wide", width=10_000).run()
    assert saved(tmp_path / "whole") == saved(tmp_path / "parts")
    sizes = [{name: len(held) for name, held in saved(tmp_path / name).items()} for name in ("whole", "wide")]
    assert sizes[0] == sizes[1] and max(sizes[0].values()) < 10_000
    text = (tmp_path / "whole" / "config.yaml").read_text()
    assert "distance='l1'" in text and "weight=0.5" in text


@pytest.mark.parametrize(
    ("other", "name"),
    [({"draw": 7}, "d: the frozen network features"), ({"of_term": 7}, "g: the frozen network of penalty perceptual")],
)
def test_a_resume_with_other_frozen_weights_is_refused(tmp_path, other, name):
    trainer(tmp_path / "run", kimg=0.008).run()
    with pytest.raises(pg.CheckpointError, match=rf"{name} had other weights \(sha256 .{{13}}, now"):
        trainer(tmp_path / "run", **other).run()


def test_a_copy_for_export_has_the_frozen_weights_by_name():
    net = Net(frozen(), 1).eval()
    x = torch.randn(3, 16, dtype=torch.float64)
    copied = copy.deepcopy(net)
    register_frozen_networks(copied)
    assert torch.equal(copied(x), net(x))
    assert {f"features.network.{name}" for name in net.features.network.state_dict()} < copied.state_dict().keys()
    assert len(net.state_dict()) == 2
