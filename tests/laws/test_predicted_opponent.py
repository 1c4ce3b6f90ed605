"""Prediction of a late opponent: weights by hand, and an asynchronous game against the plain loop."""

import copy
from dataclasses import replace

import pytest
import torch

from paragan.core.types import Side
from paragan.game.buffer import Buffer, BufferOptions
from paragan.game.snapshot import PredictedOpponent, Snapshot, packed
from paragan.parallel import none
from paragan.schemes import asynchronous
from paragan.schemes.asynchronous.fakes import FakesReceiver, FakesSender
from paragan.schemes.asynchronous.player_step import StalenessLimit
from paragan.schemes.asynchronous.thread_step import ThreadLink
from paragan.schemes.asynchronous.two_players import DiscriminatorStep, GeneratorStep
from tests.laws.small_gan import batches, game, network, player
from tests.laws.two_halves import run_halves

STEPS, WAIT_S = 5, 60.0
LIKE = {"image": torch.empty(1, 8, 8, dtype=torch.float64), "label": torch.empty((), dtype=torch.int64)}


class Numbers(torch.nn.Module):
    def __init__(self, weight: float, buffer: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([weight, -weight], dtype=torch.float64))
        self.register_buffer("mean", torch.tensor(buffer, dtype=torch.float64))


def message(weight, buffer):
    return packed(Numbers(weight, buffer).state_dict())


@pytest.mark.parametrize(
    ("factor", "step", "version", "expected"), [(1.0, 1, 1, 5.0), (0.5, 1, 1, 4.0), (1.0, 2, 4, 4.0)]
)
def test_predicted_opponent_continues_the_change_per_step(factor, step, version, expected):
    opponent = PredictedOpponent(Snapshot(Numbers(1.0, 10.0)), factor, step)
    opponent.update(message(3.0, 20.0), version)
    net = opponent.network().module
    assert net.weight.tolist() == [expected, -expected] and net.mean == 20.0
    assert opponent.snapshot.net.weight.tolist() == [3.0, -3.0] and opponent.version == version
    assert not net.weight.requires_grad


def test_predicted_opponent_forgets_the_change():
    opponent = PredictedOpponent(Snapshot(Numbers(1.0, 0.0)), 1.0)
    opponent.update(message(3.0, 0.0), 1)
    opponent.forget()
    assert opponent.network().module.weight.tolist() == [3.0, -3.0]
    opponent.update(message(4.0, 0.0), 2)
    assert opponent.network().module.weight.tolist() == [5.0, -5.0]


def test_predicted_opponent_has_the_exact_state_of_a_version_that_was_rounded():
    opponent = PredictedOpponent(Snapshot(Numbers(1.0, 0.0)), 1.0)
    opponent.update(message(3.0, 0.0), 1)
    opponent.snapshot.is_exact = False
    opponent.update(message(3.25, 0.0), 1)
    assert opponent.network().module.weight.tolist() == [3.25, -3.25]


def limit(staleness, predict):
    options = asynchronous.Options(staleness=staleness, predict=predict, fall_back=None)
    return StalenessLimit(options=options, timeout_s=WAIT_S)


def played(pace, order):
    """G's and D's networks after some steps whose delays are given."""
    on_g, on_d = (game(*(player(side, none.Strategy()) for side in Side)) for _ in range(2))
    fakes, states = (ThreadLink(4, WAIT_S) for _ in range(2))
    sender, receiver = FakesSender([fakes]), FakesReceiver([fakes], LIKE)
    generator = GeneratorStep(Snapshot(network(Side.D)), sender, states, replace(pace, order=order))
    counts = [step + 1 for step in range(STEPS)]
    critic = DiscriminatorStep(Buffer(BufferOptions(), 0), receiver, [states], replace(pace, order=counts))
    run_halves((generator, on_g), (critic, on_d), STEPS)
    assert generator.predicted is None or _predicts(generator, on_d.d.net)  # as a run that resumes here
    return on_g.g.net.state_dict(), on_d.d.net.state_dict()


def _predicts(half, net):
    """Whether G's half expects these weights in the next step."""
    predicted = half.predicted.network().module.state_dict()
    return all(value.equal(predicted[name]) for name, value in net.state_dict().items())


def by_hand(factor):
    """The same game in one loop: G's opponent is D before its update, and `factor` times its last change."""
    gan = game(*(player(side, none.Strategy()) for side in Side))
    stream = batches()
    opponent = Snapshot(network(Side.D))
    before = copy.deepcopy(gan.d.net)
    for _ in range(STEPS):
        real = next(stream)
        turn = gan.g_turn(real)
        fakes = gan.g.generate_fakes(turn)
        detached = tuple(images.detach() for images in fakes)
        opponent.net.load_state_dict(gan.d.net.state_dict())
        for weight, now, earlier in zip(
            opponent.net.parameters(), gan.d.net.parameters(), before.parameters(), strict=True
        ):
            weight.copy_(now.detach() + factor * (now.detach() - earlier.detach()))
        before = copy.deepcopy(gan.d.net)
        gan.d.update(gan.d_turn(real).with_inputs_of(turn, detached), against=gan.g)
        gan.g.update(turn.with_fakes(fakes), against=opponent)
    return gan.g.net.state_dict(), gan.d.net.state_dict()


@pytest.mark.parametrize("factor", [0.0, 1.0])
def test_asynchronous_game_with_prediction_is_the_plain_loop(factor):
    late = played(limit(1, factor), list(range(STEPS)))
    for mine, expected in zip(late, by_hand(factor), strict=True):
        assert max(float((value - expected[name]).abs().max()) for name, value in mine.items()) <= 1e-12


def test_asynchronous_game_without_delay_ignores_prediction():
    ends = [played(limit(0, factor), [step + 1 for step in range(STEPS)])[0] for factor in (0.0, 1.0)]
    assert all(value.equal(ends[1][name]) for name, value in ends[0].items())


@pytest.mark.parametrize("state_dtype", ["exact", "bf16"])
def test_paused_game_predicts_no_change_as_a_resumed_one(state_dtype):
    """A checkpoint has no earlier weights: after a pause both continue from equal states."""
    options = asynchronous.Options(staleness=1, predict=1.0, state_dtype=state_dtype)
    scheme = asynchronous.Scheme(options)
    gan = game(*(player(side, none.Strategy()) for side in Side))
    stream = batches()
    for _ in range(STEPS):
        scheme.step(gan, stream)
    half = scheme._session.generator
    scheme._session._wait(0)
    half._wait_for_version(gan.d.version)  # exact states: the pause needs no further message
    scheme.quiesce()
    assert _predicts(half, gan.d.net)
    scheme.step(gan, stream)
    scheme._session._wait(0)
    half._wait_for_version(gan.d.version)
    assert not _predicts(half, half.opponent.net)
    scheme.close()
