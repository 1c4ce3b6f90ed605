"""Three players are a plain loop, in float64; one more is a test file, and no line of the engine."""

import random
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import paragan as pg
from examples import dmd2
from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.protocols import Loss
from paragan.core.types import Batch, Rows, Side
from paragan.game.gan import GAN
from paragan.game.options import AdversarialOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.losses import hinge
from paragan.schemes import dmd2 as scheme, synchronous
from tests.distributed import cases_players as cases
from tests.examples.stopped_runs import Killed, killed_at

SEED, BATCH, STEPS, WEIGHT, LR = 7, 6, 3, 0.3, 1e-2
FAKE_SCORE = Side("fake_score")
UPDATES = {Side.G: 1, Side.D: 1, FAKE_SCORE: 2}
BETAS = (0.0, 0.99)


def networks():
    torch.manual_seed(0)
    sizes = {Side.G: (dmd2.Net, dmd2.LATENT, 2), Side.D: (dmd2.Net, 2, 1), FAKE_SCORE: (dmd2.FakeScore, 3, 2)}
    return {side: kind(inputs, outputs, width=8).double() for side, (kind, inputs, outputs) in sizes.items()}


class Pull(pg.Penalty):
    """A loss of G whose gradient passes through the fake score."""

    name, side, players = "pull", Side.G, ("fake_score",)

    def __call__(self, context):
        x_B2 = context.outputs.images
        return context.players["fake_score"](x_B2, torch.ones_like(x_B2[:, :1])).mean(1)


def game(nets, parts=1, *more):
    def player(side):
        policy = Policy(
            kind=torch.optim.Adam,
            lr=LR,
            arguments={"betas": BETAS},
            micro_batches=parts,
            updates_per_step=UPDATES[side],
        )
        return Player(side=side, net=nets[side], policy=policy)

    prior = Prior(
        seed=SEED,
        latent=dmd2.LATENT,
        dtype=torch.float64,
        discriminator_arguments=("x",),
        generator_arguments=("latent",),
    )
    return GAN(
        g=player(Side.G),
        d=player(Side.D),
        loss=Loss(hinge.d_loss, hinge.g_loss),
        prior=prior,
        g_penalties=(dmd2.DistributionMatching(), *more),
        adversarial=AdversarialOptions(weight=WEIGHT),
        extra={FAKE_SCORE: player(FAKE_SCORE)},
        extra_penalties={FAKE_SCORE: (dmd2.Denoising(),)},
    )


def rows_of(step):
    return Rows(step=step, first=0, count=BATCH, total=BATCH)


def real_of(step):
    return rng.normal(1, "real", rows_of(step), (2,)).double()


def batches():
    step = 0
    while True:
        yield Batch(rows_of(step), {"x": real_of(step)})
        step += 1


def drawn(stream, step, shape):
    return rng.normal(SEED, stream, rows_of(step), shape).double()


def noised(name, step, x):
    share = rng.uniform(SEED, f"{name}/sigma", rows_of(step), (1,)).double()
    sigma = 0.1 * 20**share
    return x + sigma * drawn(f"{name}/noise", step, (2,)), sigma


def plain_loop(nets, shares_images):
    """DMD2 without the library: the fake score on two batches, D on the second, then G."""
    g, d, fake_score = nets.values()
    adams = {net: torch.optim.Adam(net.parameters(), LR, BETAS) for net in nets.values()}

    def descend(net, loss):
        adams[net].zero_grad()
        loss.backward()
        adams[net].step()

    def images(name, step):
        return g(drawn(f"{'critics' if shares_images else name}/z", step, (dmd2.LATENT,))).detach()

    for step in range(2 * STEPS):
        if step % 2:
            fake, real = d(images("d", step)), d(real_of(step))
            descend(d, (F.relu(1 + fake) + F.relu(1 - real)).mean())
        x = images("fake_score", step)
        noisy, sigma = noised("denoising", step, x)
        error = (fake_score(noisy, sigma) - x).square() * (sigma.square() + 2) / (2 * sigma.square())
        descend(fake_score, error.mean())
        if step % 2:
            x = g(drawn("g/z", step, (dmd2.LATENT,)))
            noisy, sigma = noised("distribution_matching", step, x.detach())
            real = dmd2.exact_denoiser(noisy, sigma)
            towards = ((x - real) - (x - fake_score(noisy, sigma))) / (x - real).abs().mean(1, keepdim=True)
            matching = F.mse_loss(x, (x - towards).detach()) / 2
            descend(g, matching - WEIGHT * d(x).mean())


def test_dropout_of_g_differs_between_the_batches_of_a_step(monkeypatch):
    seeds = []
    monkeypatch.setattr(scheme, "seeded_layers", lambda turn, version, *nets: nullcontext(seeds.append(version)))
    play()
    assert seeds == [0, 1, 2, 3, 4, 5]


def largest_difference(a, b):
    pairs = (zip(a[side].parameters(), b[side].parameters(), strict=True) for side in a)
    return max(float((x - y).detach().abs().max()) for of_side in pairs for x, y in of_side)


def play(parts=1, step=scheme.step):
    nets = networks()
    gan, stream = game(nets, parts), batches()
    reports = [step(gan, stream) for _ in range(STEPS)]
    return nets, reports


@pytest.mark.parametrize(("step", "shares"), [(scheme.step, True), (synchronous.step, False)])
def test_three_players_are_a_plain_loop(step, shares):
    nets, reports = play(step=step)
    plain = networks()
    plain_loop(plain, shares)
    assert largest_difference(nets, networks()) > 1e-3
    assert largest_difference(nets, plain) < 1e-12
    assert [report.images for report in reports] == [2 * BATCH * n for n in (1, 2, 3)]
    assert {"fake_score/loss/denoising", "g/loss/distribution_matching", "d/real"} <= reports[-1].scalars.keys()


def test_micro_batches_of_three_players_are_the_whole_batch():
    assert largest_difference(play(parts=1)[0], play(parts=3)[0]) < 1e-12


@pytest.mark.parametrize("step", [scheme.step, synchronous.step])
def test_further_players_train_while_d_has_not_begun(step):
    nets = networks()
    gan = game(nets)
    gan.adversarial = AdversarialOptions(weight=WEIGHT, d_start_kimg=1)
    step(gan, batches())
    before = networks()
    changed = {side: largest_difference({side: net}, {side: before[side]}) > 0 for side, net in nets.items()}
    assert changed == {Side.G: True, Side.D: False, FAKE_SCORE: True}


def test_player_that_a_term_calls_is_frozen_in_that_turn_and_trains_again():
    gan = game(networks(), 1, Pull())
    before = [weight.clone() for weight in gan.g.net.parameters()]
    gan.g.update(gan.g_turn(next(batches())), against=gan.d)
    assert not all(map(torch.equal, before, gan.g.net.parameters()))
    for player in gan.slots.values():
        assert all(weight.requires_grad and weight.grad is None for weight in player.net.parameters())


def test_names_of_players_are_one_object_each_and_invalid_ones_are_refused():
    assert pg.Side("fake_score") is FAKE_SCORE and FAKE_SCORE.is_extra
    assert list(Side) == [Side.G, Side.D] and not Side.G.is_extra
    for name in ("", "Fake", "a.b", "a/b", 3, None, "x" * 65):
        with pytest.raises(ValueError, match="is not a valid Side"):
            Side(name)


def test_term_that_calls_an_unknown_player_is_refused():
    with pytest.raises(ConfigError, match=r"g: distribution_matching calls the player 'fake_score', which does not"):
        GAN(
            g=None,
            d=None,
            loss=Loss(hinge.d_loss, hinge.g_loss),
            prior=Prior(seed=0, latent=1),
            g_penalties=(dmd2.DistributionMatching(),),
        )


def test_fourth_player_of_a_test_file_trains_saves_and_resumes_bit_for_bit(tmp_path):
    names = ("fake_score", "doubt")
    cases.trainer(tmp_path / "straight", names=names).run()
    batches_of_run = cases.STEPS * max(cases.UPDATES.values())
    for position in sorted(random.Random(25).sample(range(2, batches_of_run), 3)):
        made = cases.trainer(tmp_path / "killed", names=names, **{"every.save_kimg": cases.KIMG})
        with pytest.raises(Killed):
            killed_at(made, position, cases.BATCH).run()
    cases.trainer(tmp_path / "killed", names=names, **{"every.save_kimg": cases.KIMG}).run()
    expected, found = (cases.tensors_of(tmp_path / name) for name in ("straight", "killed"))
    assert expected.keys() == found.keys()
    assert {"doubt/net/0.weight", "doubt/optimizer/0.weight/exp_avg", "fake_score/player/updates"} <= found.keys()
    assert all(torch.equal(value, found[name]) for name, value in expected.items())
    updates = {name: int(found[f"{name}/player/updates"]) for name in ("g", *cases.UPDATES)}
    assert updates == {name: cases.STEPS * cases.UPDATES.get(name, 1) for name in updates}


def test_engine_checkpoints_and_strategies_know_no_further_player():
    source = Path(pg.__file__).parent
    text = "".join(
        path.read_text() for room in ("engine", "checkpoint", "parallel") for path in source.glob(f"{room}/*.py")
    )
    assert "Player" in text
    assert not [word for word in ("fake_score", "is_extra", "gan.extra", "doubt") if word in text]
