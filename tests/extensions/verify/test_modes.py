"""Frozen parts of a network (a perceptual extractor) stay in evaluation mode, whatever is done to the network."""

from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import paragan as pg
from paragan.api.estimator import Estimator
from paragan.cli.main import main
from paragan.core.types import Batch, Rows
from paragan.extensions.verify import network_laws
from paragan.extensions.verify.network_traits import inspect_network
from paragan.extensions.verify.reference_run import exact_arithmetic
from paragan.extensions.verify.verify_networks import VerifyRequest, verified_networks
from paragan.game.ema import Ema
from paragan.game.network import CalledNetwork
from paragan.game.options import EmaOptions
from paragan.game.sampling import generate_images
from paragan.layers.batch_norm import AffineBatchNorm
from paragan.layers.cross_rank import CrossRankBatchNorm, convert
from paragan.layers.update_once import mixes_samples
from paragan.losses import wasserstein
from paragan.penalties import gradient_penalty
from paragan.schemes import synchronous

SHAPE = (1, 4, 4)


def extractor() -> nn.Module:
    """Batch norms of both kinds, frozen."""
    layers = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), AffineBatchNorm(2), nn.Dropout(0.5))
    return layers.eval().requires_grad_(False)


class Perceptual(nn.Module):
    """A D that judges what a frozen extractor finds, and a G that is shaped by one."""

    latent = 16

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.extractor, self.last, self.outputs = extractor(), nn.Linear(32, outputs), outputs

    def forward(self, x: Tensor) -> Tensor:
        out = self.last(self.extractor(x.view(-1, *SHAPE)).flatten(1))
        return out.squeeze(1) if self.outputs == 1 else out.tanh().view(-1, *SHAPE)


def modes(net: nn.Module) -> list[bool]:
    return [module.training for module in net.modules()]


def frozen_state(net: Perceptual) -> list[Tensor]:
    return [value.clone() for value in net.extractor.state_dict().values()]


@pytest.mark.parametrize("mode", ["eval", "train-stats"])
def test_sample_restores_the_mode_of_every_module(mode):
    net = Perceptual(16)
    before, state = modes(net), frozen_state(net)
    generate_images(CalledNetwork(module=net), torch.randn(4, 16), None, mode=mode)
    assert modes(net) == before and not all(before) and any(before)
    assert all(map(torch.equal, frozen_state(net), state))


def test_a_frozen_part_of_an_average_stays_in_evaluation_with_training_statistics():
    seen = []
    average = Ema(Perceptual(16), EmaOptions())
    average.net.extractor.register_forward_hook(lambda module, *_: seen.append((module.training, average.net.training)))
    generate_images(CalledNetwork(module=average.net), torch.randn(4, 16), None, mode="train-stats")
    assert seen == [(False, True)]
    assert not any(modes(average.net))


def test_batch_norm_of_a_frozen_part_mixes_no_samples():
    assert not mixes_samples(Perceptual(1))
    thawed = Perceptual(1)
    thawed.extractor.train()
    assert mixes_samples(thawed)
    assert mixes_samples(Perceptual(1).requires_grad_(True))
    assert mixes_samples(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))


def test_batch_norm_of_a_frozen_part_is_not_converted():
    net = nn.ModuleDict({"frozen": extractor(), "own": nn.Sequential(nn.BatchNorm2d(2), AffineBatchNorm(2))})
    convert(net, SimpleNamespace(size=2, group=None, count=print), 1)
    assert type(net["frozen"][1]) is nn.BatchNorm2d
    assert not isinstance(net["frozen"][2].norm, CrossRankBatchNorm)
    assert type(net["own"][0]) is not nn.BatchNorm2d
    assert isinstance(net["own"][1].norm, CrossRankBatchNorm)


def test_training_leaves_a_frozen_part_as_it_was():
    g, d = (pg.Player(side=side, net=Perceptual(outputs)) for side, outputs in ((pg.Side.G, 16), (pg.Side.D, 1)))
    before = [(modes(player.net), frozen_state(player.net)) for player in (g, d)]
    loss, penalty = (
        pg.Loss(wasserstein.d_loss, wasserstein.g_loss),
        gradient_penalty.Penalty(gradient_penalty.Options()),
    )
    gan = pg.GAN(g=g, d=d, loss=loss, prior=pg.Prior(seed=0, latent=16), d_penalties=(penalty,))
    batches = (
        Batch(Rows(step=step, first=0, count=4, total=4), {"image": torch.randn(4, *SHAPE)}) for step in range(2)
    )
    for _ in range(2):
        synchronous.step(gan, batches)
        generate_images(CalledNetwork(module=g.net), torch.randn(4, 16), None)
    for player, (mode, state) in zip((g, d), before, strict=True):
        assert modes(player.net) == mode
        assert all(map(torch.equal, frozen_state(player.net), state))
    assert g.version == d.version == 2


def test_an_estimator_trains_all_but_frozen_parts():
    nets = Estimator(Perceptual(16).eval(), Perceptual(1)).networks()
    for net in (nets.g, nets.d):
        assert net.training and net.last.training
        assert not any(modes(net.extractor))


@pytest.mark.parametrize("declared", [False, True], ids=["plain", "declared"])
def test_the_laws_hold_for_a_discriminator_with_a_frozen_part(tmp_path, declared):
    (tmp_path / "frozen.py").write_text(
        "import paragan as pg\nfrom tests.extensions.verify.test_modes import Perceptual\n\n"
        "def made(outputs):\n    net = Perceptual(outputs)\n"
        f"    net.extractor = pg.Frozen(net.extractor) if {declared} else net.extractor\n    return net\n\n"
        "def Generator(options, shape, num_classes):\n    return made(16)\n\n"
        "def Discriminator(options, shape, num_classes):\n    return made(1)\n"
    )
    tried = verified_networks(VerifyRequest(target=str(tmp_path / "frozen.py"), shape=SHAPE, classes=0, ranks=1))
    with exact_arithmetic():
        traits = inspect_network(tried, pg.Side.D)
        assert traits.mixing_layers == () and traits.row_dependence == 0
        assert network_laws.check_double_backward(tried, traits).result == "held"


MODEL = """
import torch
from torch import nn
from tests.extensions.verify.test_modes import extractor

class Net(nn.Module):
    latent, num_classes = 8, 0

    def __init__(self, outputs):
        super().__init__()
        self.first, self.last, self.outputs = nn.Linear(8 if outputs > 1 else 64, 64), nn.Linear(128, outputs), outputs
        self.extractor = extractor()

    def forward(self, x, y=None):
        out = self.last(self.extractor(self.first(x.flatten(1)).view(-1, 1, 8, 8)).flatten(1))
        return out.squeeze(1) if self.outputs == 1 else out.tanh().view(-1, 1, 8, 8)

def Generator(options, shape, num_classes):
    return Net(64)

def Discriminator(options, shape, num_classes):
    return Net(1)
"""


@pytest.mark.parametrize("features", ["null", pytest.param("judge", marks=pytest.mark.slow)])
def test_score_sample_and_resume_leave_frozen_parts_of_a_run_as_they_were(tmp_path, monkeypatch, features):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(MODEL)
    small = ["model=nets.py", "data.size=8", "train.batch=8", "g.precision=fp32", "d.precision=fp32", "augment=null"]
    scored = [f"evaluation={{features: {features}, num_images: 60}}", "every.score_kimg=0.016", "writers=[jsonl]"]

    def run(folder, kimg):
        words = [*small, *scored, "penalties=[]", "g.ema.half_life_kimg=0.01", f"train.kimg={kimg}", "--out", folder]
        assert main(["train", "digits", *words]) == 0
        newest = max((tmp_path / folder / "checkpoints").glob("step-*"))
        return {name: load_file(newest / f"{name}.safetensors") for name in ("g", "d")}

    half = run("parts", 0.016)
    sampled = pg.load("parts", trust=True).sample(4, seed=0).tensor
    parts, whole = run("parts", 0.032), run("whole", 0.032)
    assert sampled.isfinite().all()
    for side, tensors in whole.items():
        assert all(torch.equal(value, parts[side][name]) for name, value in tensors.items())
        frozen = {name for name in tensors if "extractor." in name and not name.startswith("optimizer/")}
        assert len(frozen) > 8 and all(torch.equal(tensors[name], half[side][name]) for name in frozen)
        assert not any(name.startswith("optimizer/extractor") for name in tensors)
        assert not torch.equal(tensors["net/last.weight"], half[side]["net/last.weight"])
