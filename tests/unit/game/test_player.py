"""The player: skip, clip, schedule, average, loss scale; one turn changes one player."""

import copy

import pytest
import torch
from torch import nn

from paragan.core.types import Side
from paragan.game.ema import Ema
from paragan.game.network import Calling
from paragan.game.optimizer_calls import Scaler
from paragan.game.options import EmaOptions, ScheduleOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.schedule import factor
from paragan.layers.batch_norm import BatchNorm
from paragan.parallel import none
from paragan.schemes import synchronous
from tests.laws.small_gan import BATCH, batches, distance, game, network, play, player


def weights(seat: Player) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in seat.net.state_dict().items()}


def plain_game(**kinds):
    seats = []
    for side in Side:
        options = {"lr": 1e-2, **kinds.get(side.value, {})}
        ema = Ema(network(side), EmaOptions(half_life_kimg=0.02, **kinds.get("average", {})))
        seats.append(Player(side=side, net=network(side), strategy=none.Strategy(), policy=Policy(**options), ema=ema))
    return game(*seats)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop])
def test_a_nan_in_d_skips_d_and_not_g(kind):
    schedule = ScheduleOptions(name="linear", end=10)
    gan = plain_game(d={"kind": kind, "schedule": schedule}, g={"schedule": schedule})
    stream = batches()
    play(gan, synchronous, stream, steps=2)
    before, average, updates = weights(gan.d), dict(copy.deepcopy(gan.d.ema.net).state_dict()), int(gan.d.updates)
    lr = float(gan.d.optimizer.param_groups[0]["lr"])
    g_before, bad = weights(gan.g), next(stream)
    bad.image[0, 0, 0, 0] = float("nan")
    report = synchronous.step(gan, iter([bad])).read()

    assert not torch.isfinite(torch.tensor(report["d/gradient_norm"]))
    parameters = [name for name, _ in gan.d.net.named_parameters()]
    assert all(torch.equal(before[n], gan.d.net.state_dict()[n]) for n in parameters)
    assert all(torch.isfinite(t).all() for t in gan.d.net.state_dict().values())  # spectral norm's vectors, too
    assert distance(average, dict(gan.d.ema.net.state_dict())) == 0
    assert int(gan.d.updates) == updates
    assert distance(g_before, weights(gan.g)) > 1e-4
    assert int(gan.g.updates) == updates + 1

    play(gan, synchronous, stream, steps=1)  # and D goes on, one schedule step behind G
    assert int(gan.d.updates) == updates + 1
    assert distance(before, weights(gan.d)) > 1e-5
    assert float(gan.d.optimizer.param_groups[0]["lr"]) == pytest.approx(1e-2 * (1 - updates / 10), abs=1e-12)
    assert lr == pytest.approx(1e-2 * (1 - (updates - 1) / 10), abs=1e-12)


def test_a_turn_changes_only_its_own_player():
    gan = plain_game()
    real = next(batches())
    before = weights(gan.g)
    gan.d.update(gan.d_turn(real), against=gan.g)
    assert distance(before, weights(gan.g)) == 0
    before = weights(gan.d)
    gan.g.update(gan.g_turn(real), against=gan.d)
    assert distance(before, weights(gan.d)) == 0
    assert all(p.requires_grad for p in gan.d.net.parameters())


def test_spectral_vectors_advance_once_per_update_whatever_the_parts():
    results = []
    for parts in (1, 4):
        gan = game(*(player(side, none.Strategy(), parts=parts) for side in Side))
        play(gan, synchronous, batches())
        results.append((weights(gan.g), weights(gan.d)))
    assert distance(results[0][0], results[1][0]) <= 1e-12
    assert distance(results[0][1], results[1][1]) <= 1e-12


def test_ds_parts_do_not_cut_the_batch_of_a_generator_with_batch_norm():
    results = []
    for parts in (1, 4):
        g, d = (player(side, none.Strategy(), parts=parts if side is Side.D else 1) for side in Side)
        mixing = nn.Sequential(g.net, BatchNorm(1).double())
        gan = game(Player(side=Side.G, net=Unary(mixing), strategy=none.Strategy(), policy=Policy(lr=1e-2)), d)
        play(gan, synchronous, batches())
        results.append(weights(gan.d))
    assert distance(*results) <= 1e-12


class Unary(nn.Module):
    """A generator followed by something that takes images only."""

    def __init__(self, chain):
        super().__init__()
        self.chain = chain

    def forward(self, z, y):
        return self.chain[1](self.chain[0](z, y))


def test_average_is_its_closed_form():
    """e_n = sum over k of (1 - b) b^(n-k) w_k + b^n w_0, where the average follows until `start`."""
    gan = plain_game(average={"start_kimg": 2 * BATCH / 1000})
    stream, history = batches(), []
    for _ in range(6):
        synchronous.step(gan, stream)
        history.append(weights(gan.g))
    beta = 0.5 ** (BATCH / 20)
    for name, found in gan.g.ema.net.named_parameters():
        expected = history[1][name]  # the last copy
        for later in history[2:]:
            expected = beta * expected + (1 - beta) * later[name]
        assert torch.allclose(found, expected, rtol=0, atol=1e-14)
    for name, found in gan.g.ema.net.named_buffers():
        assert torch.equal(found, history[-1][name])


def test_clipping_scales_the_whole_gradient():
    steps = []
    for max_norm in (None, 1e-3):
        gan = plain_game(d={"kind": torch.optim.SGD, "max_norm": max_norm})
        before = weights(gan.d)
        told = play(gan, synchronous, batches(), steps=1)[0]
        steps.append(
            ({k: v - before[k] for k, v in weights(gan.d).items() if k in dict(gan.d.net.named_parameters())}, told)
        )
    (free, told), (clipped, told_clipped) = steps
    assert told["d/gradient_norm"] == pytest.approx(told_clipped["d/gradient_norm"])
    norm = torch.sqrt(sum(v.square().sum() for v in clipped.values()))
    assert float(norm) == pytest.approx(1e-2 * 1e-3, rel=1e-3)
    ratio = [float((c / f).flatten()[0]) for c, f in zip(clipped.values(), free.values(), strict=True)]
    assert max(ratio) == pytest.approx(min(ratio), rel=1e-6)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (ScheduleOptions(), [1, 1, 1, 1, 1]),
        (ScheduleOptions(warmup=4), [0.25, 0.5, 0.75, 1, 1]),
        (ScheduleOptions(name="linear", start=1, end=3, final=0.2), [1, 1, 0.6, 0.2, 0.2]),
        (ScheduleOptions(name="cosine", end=4), [1, 0.8535533905932737, 0.5, 0.1464466094067263, 0]),
    ],
)
def test_schedules(options, expected):
    assert [float(factor(options, torch.tensor(n))) for n in range(5)] == pytest.approx(expected, abs=1e-7)


def test_the_loss_scale_leaves_the_gradient_and_backs_off_alone():
    """A scaled player takes the step of an unscaled one; an overflow halves its scale and skips its step."""
    plain, scaled = plain_game(), plain_game()
    for seat in (scaled.g, scaled.d):
        seat.calling = Calling(scaled=True)
        seat.scaler = Scaler(torch.device("cpu"), initial=2.0**10, interval=2)
    for gan in (plain, scaled):
        play(gan, synchronous, batches(), steps=3)
    assert distance(weights(plain.d), weights(scaled.d)) <= 1e-12
    assert distance(weights(plain.g), weights(scaled.g)) <= 1e-12
    assert float(scaled.d.scaler.scale) == 2.0**11
    bad = next(batches())
    bad.image.fill_(float("inf"))
    synchronous.step(scaled, iter([bad]))
    assert float(scaled.d.scaler.scale) == 2.0**10
    assert float(scaled.g.scaler.scale) == 2.0**12


def test_updates_per_step_draws_that_many_batches():
    gan = plain_game(d={"updates_per_step": 3})
    stream = batches()
    synchronous.step(gan, stream)
    assert (gan.d.version, gan.g.version) == (3, 1)
    assert next(stream).rows.step == 3
    assert gan.clock.images == 3 * BATCH


def test_a_loss_scale_stays_finite_without_gradients():
    scaler = Scaler(torch.device("cpu"), interval=1)
    for _ in range(300):
        scaler.update(torch.tensor(True))
    assert scaler.scale == 2.0**24
    scaler.update(torch.tensor(False))
    assert scaler.scale == 2.0**23
