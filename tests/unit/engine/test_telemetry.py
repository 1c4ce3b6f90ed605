"""Telemetry tells the right numbers, and a run that is looked at is the run that is not."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm as torch_spectral_norm

from paragan.augment import ada
from paragan.core import rng
from paragan.core.outputs import DiscriminatorOutput
from paragan.core.protocols import Loss
from paragan.core.types import Batch, Rows, Side
from paragan.datasets.base.in_memory import InMemorySource
from paragan.engine.telemetry import (
    Telemetry,
    judgement,
    out_of_reach,
    overfitting,
    saturation,
    singular_values,
)
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.layers.spectral_norm import spectral_norm
from paragan.losses import hinge, least_squares, nonsaturating, relativistic, wasserstein
from paragan.parallel import none
from paragan.schemes import shared_fakes, synchronous
from tests.laws.small_gan import small_game
from tests.laws.test_no_sync import HostReads

NAMES = {
    *("d/accuracy_train", "d/accuracy_fake", "d/accuracy_held_out", "d/held_out", "d/overfitting", "d/saturation"),
    *("gradient_norm_ratio", "diversity", "g/out_of_reach"),
    *("g/top_singular_value", "d/top_singular_value"),
}


def source(count, seed=0, classes=3):
    draw = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, 1, 8, 8), generator=draw, dtype=torch.uint8)
    return InMemorySource(images, torch.arange(count) % classes, tuple("abc"[:classes]))


def look(**more):
    return Telemetry(**{"train": source(40), "held_out": source(20, seed=1), "num_images": 32, "batch": 12, **more})


def test_telemetry_measures_256_images_by_default():
    assert Telemetry(train=None, held_out=source(2)).num_images == 256
    assert look().num_images == 32


class Outside(nn.Module):
    """What somebody else's network may do in a forward: torch's own norms, dropout, noise."""

    def __init__(self, inputs, outputs, shape):
        super().__init__()
        hidden = torch_spectral_norm(nn.Linear(inputs, 16))
        self.chain = nn.Sequential(hidden, nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, outputs))
        self.shape = shape

    def forward(self, x, y=None):
        h = self.chain(x.flatten(1))
        return (h + torch.randn_like(h) / 10).unflatten(1, self.shape)


def outside_game():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        nets = {Side.G: Outside(6, 64, (1, 8, 8)), Side.D: Outside(64, 1, (1,))}
    policy = Policy(lr=1e-2)
    g, d = (Player(side=side, net=nets[side], strategy=none.Strategy(), policy=policy) for side in Side)
    return GAN(g=g, d=d, loss=Loss(hinge.d_loss, hinge.g_loss), prior=Prior(seed=5, latent=6, num_classes=3))


def real_batches(dtype):
    for step in range(100):
        rows = Rows(step=step, first=0, count=8, total=8)
        x = rng.uniform(3, "x", rows, (1, 8, 8)).to(dtype) * 2 - 1
        yield Batch(rows, {"image": x, "label": rng.integers(3, "y", rows, 3)})


def everything(gan):
    """All that a later step could depend on."""
    tensors = {"generator": torch.get_rng_state()}
    flags = {}
    for side, player in (("g", gan.g), ("d", gan.d)):
        tensors |= {f"{side}.{k}": v.clone() for k, v in player.net.state_dict().items()}
        flags |= {f"{side}.{k}": (p.requires_grad, p.grad is None) for k, p in player.net.named_parameters()}
        flags |= {f"{side}.{k}": (m.training, getattr(m, "armed", None)) for k, m in player.net.named_modules()}
        flags[f"{side}.version"] = player.version
    return tensors, flags


@pytest.mark.parametrize("make", [small_game, outside_game])
@pytest.mark.parametrize("scheme", [synchronous, shared_fakes.Scheme()])
def test_telemetry_does_not_change_the_run(make, scheme):
    def play(seen):
        torch.manual_seed(1)
        gan, telemetry = make(), look()
        stream = real_batches(next(gan.g.net.parameters()).dtype)
        reports = []
        for _ in range(4):
            before = everything(gan)
            if seen:
                assert NAMES - {"gradient_norm_ratio"} == set(telemetry(gan))
            assert_same(everything(gan), before)
            reports.append(scheme.step(gan, stream).read())
        return reports, everything(gan)

    (reports, state), (alone_reports, alone) = play(seen=True), play(seen=False)
    assert reports == alone_reports
    assert_same(state, alone)


def assert_same(one, other):
    assert one[1] == other[1]
    assert [name for name, value in one[0].items() if not torch.equal(value, other[0][name])] == []


def test_telemetry_is_independent_of_random_state():
    gan = small_game()
    gan.g.net.register_forward_pre_hook(lambda _, inputs: (inputs[0] + torch.randn(()), *inputs[1:]))
    with torch.random.fork_rng():
        torch.manual_seed(1)
        once = look()(gan)
        torch.manual_seed(2)
        assert look()(gan) == once


def test_telemetry_synchronizes_once():
    gan, telemetry = small_game(), look()
    report = synchronous.step(gan, real_batches(torch.float64))
    telemetry(gan)  # reads the images
    with HostReads() as reads:
        found = telemetry(gan, report.scalars)
    assert sum(reads.seen.values()) <= 1
    assert set(found) == NAMES
    norms = report.read()
    assert found["gradient_norm_ratio"] == pytest.approx(norms["g/gradient_norm"] / norms["d/gradient_norm"])


@pytest.mark.parametrize("shift", [0, -50, 300])
def test_accuracy_is_independent_of_logit_offset(shift):
    train, fake = torch.tensor([3.0, 2, 1, -3]) + shift, torch.tensor([-2.0, -2, -3, -4]) + shift
    assert judgement(train, fake) == {"d/accuracy_train": 0.75, "d/accuracy_fake": 1}
    held_out = torch.tensor([2.0, 2, -2, -3]) + shift
    assert overfitting(train, held_out, fake)["d/accuracy_held_out"] == 0.5


@pytest.mark.parametrize(
    ("held_out", "fake", "expected"),
    [(5, 1, 0), (1, 1, 1), (3, 1, 0.5), (-9, 1, 1), (30, 1, -1), (2, 5, 0), (2, 7, 0), (float("nan"), 1, None)],
)
def test_overfitting_ranges_from_zero_to_one(held_out, fake, expected):
    logits = (torch.full((4,), float(value)) for value in (5, held_out, fake))
    found = float(overfitting(*logits)["d/overfitting"])
    assert (found != found) if expected is None else found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [(nonsaturating, 0.5), (hinge, 0.5), (least_squares, 0), (wasserstein, 0), (relativistic, 0.5)],
)
def test_saturation_follows_from_the_loss(loss, expected):
    real, fake = torch.tensor([0.5, 20]), torch.tensor([0.5, -20])
    assert saturation(loss.d_loss, real, fake) == expected
    assert saturation(loss.d_loss, real.expand(3, 2), fake.expand(3, 2)) == expected  # patches
    assert saturation(loss.d_loss, 0 * real, 0 * fake) == (0.5 if loss is least_squares else 0)  # its fakes belong at 0


def test_telemetry_of_nan_logits_is_nan():
    nan, fine = torch.full((4,), torch.nan), torch.ones(4)
    assert all(value.isnan() for value in judgement(nan, fine).values())
    assert saturation(nonsaturating.d_loss, nan, fine).isnan()


def test_out_of_reach_is_the_share_of_real_values_far_from_all_generated_ones():
    real = torch.tensor([-1.0, -0.2, -0.05, 0.0, 0.5, 1.0, 1.05, 1.2]).reshape(2, 1, 2, 2).double()
    sigmoid = torch.tensor([0.0, 0.3, 0.9, 1.0]).reshape(1, 1, 2, 2).double()
    assert float(out_of_reach(real, sigmoid)) == 3 / 8  # -1, -0.2 and 1.2
    assert float(out_of_reach(real, 2 * sigmoid - 1)) == 1 / 8
    assert torch.isnan(out_of_reach(real, sigmoid * torch.nan))


def test_singular_values_are_of_normalized_weights():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(8, 5, 4), spectral_norm(nn.Conv2d(5, 16, 3)), nn.BatchNorm2d(16),
            nn.Linear(16, 4), nn.Embedding(10, 4),
        )  # fmt: skip
    found = singular_values(net)
    matrices = {"0": net[0].weight.flatten(1), "1": net[1].weight.transpose(0, 1).flatten(1), "4": net[4].weight}
    assert found.keys() == {*matrices, "2"}  # neither gains nor tables
    for name, matrix in matrices.items():
        exact = float(torch.linalg.matrix_norm(matrix.detach(), 2))
        assert 0.95 * exact <= found[name] <= 1.0001 * exact
    assert found["2"] == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(("weight", "expected"), [(2.0, 8.0), (1e-3, 1.0)])
def test_telemetry_top_singular_value_is_of_any_layer(weight, expected):
    """A row of 16 equal weights has the singular value 4 of them; the other layer is normalised."""
    gan, telemetry = outside_game(), look()
    with torch.no_grad():
        gan.d.net.chain[4].weight.fill_(weight)
    assert telemetry(gan)["d/top_singular_value"] == pytest.approx(expected, rel=0.02)


class Knows(nn.Module):
    """A D that has learnt these images by heart: 1 or -1 on average over three patches."""

    def __init__(self, images_NCHW):
        super().__init__()
        self.known = nn.Parameter(images_NCHW.float() / 127.5 - 1)

    def forward(self, x_BCHW, y_B=None):
        near = torch.cdist(x_BCHW.flatten(1), self.known.flatten(1)).amin(1) < 1e-2
        return DiscriminatorOutput((2.0 * near - 1)[:, None, None] + torch.tensor([-5.0, 0, 5]))


def seats(g, d, **more):
    g, d = (SimpleNamespace(network=lambda net=net: called(net)) for net in (g, d))
    return GAN(g=g, d=d, loss=Loss(hinge.d_loss, hinge.g_loss), prior=Prior(seed=5, latent=6), **more)


def called(net):
    return Player(side=Side.D, net=net, strategy=none.Strategy()).plain_network


def test_telemetry_memorizing_d_has_overfitting_one():
    train = source(40)
    gan = seats(Outside(6, 64, (1, 8, 8)), Knows(train.images_NCHW))
    found = look(train=train)(gan)
    assert (found["d/accuracy_train"], found["d/accuracy_fake"]) == (1, 1)
    assert (found["d/accuracy_held_out"], found["d/overfitting"], found["d/held_out"]) == (0, 1, -1)
    assert found["d/saturation"] == pytest.approx(2 / 3)  # of the patches; by the mean it were all


def test_telemetry_several_discriminators_count_equally():
    """Each by its mean logit: three patches of one do not outvote the one of the other."""
    train = source(40)

    class Several(nn.Module):
        def __init__(self):
            super().__init__()
            self.knows = Knows(train.images_NCHW)

        def forward(self, x_BCHW, y_B=None):
            return {"knows": self.knows(x_BCHW), "flat": torch.zeros(len(x_BCHW))}

    found = look(train=train)(seats(Outside(6, 64, (1, 8, 8)), Several()))
    assert (found["d/accuracy_train"], found["d/overfitting"], found["d/held_out"]) == (1, 1, -0.5)


def test_telemetry_inputs_of_d_are_augmented():
    train = source(40)
    gan = seats(Outside(6, 64, (1, 8, 8)), Knows(train.images_NCHW), augment=lambda x, seed, stream, rows: -x)
    assert look(train=train)(gan)["d/accuracy_train"] == 0  # all logits are equal: nothing is above the border


def test_telemetry_augments_as_training_does_now():
    """What is scheduled by images has its value of now, also where it began at 0."""
    train, seen = source(40), []
    augment = ada.Augment(ada.Options(target=None, p=0.0, final=0.8, final_kimg=1.0))
    gan = seats(Outside(6, 64, (1, 8, 8)), Knows(train.images_NCHW))

    def noted(x, seed, stream, rows):
        seen.append(bool((augment(x, seed, stream, rows) != x).any()))
        return x

    gan.augment = noted
    look(train=train)(gan)
    assert seen and not any(seen)
    gan.clock.advance(1000)
    seen.clear()
    look(train=train)(gan)
    assert seen and all(seen)


@pytest.mark.parametrize(("images", "held_out"), [(1, 20), (2, 1), (13, 0), (40, 20)])
def test_telemetry_works_with_few_images(images, held_out):
    found = look(train=source(images), held_out=source(held_out))(outside_game())
    absent = {"d/accuracy_held_out", "d/held_out", "d/overfitting"} if not held_out else set()
    absent |= {"diversity"} if images == 1 else set()
    assert set(found) == NAMES - absent - {"gradient_norm_ratio"}
