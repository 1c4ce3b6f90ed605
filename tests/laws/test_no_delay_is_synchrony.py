"""Laws of players that train at the same time, each in a thread of its own, also with a predicted opponent.

With a staleness of 0 they are the plain game, bit for bit: fakes not reused, `synchronous`; reused, `shared_fakes`. The
bound is kept, whatever the delays. A prediction is the plain loop of its formula.
"""

import copy
import random
import threading
import time
from dataclasses import replace

import pytest
import torch

from paragan.core.errors import RankError
from paragan.core.types import Side
from paragan.game.buffer import Buffer
from paragan.game.snapshot import PredictedOpponent, Snapshot, packed
from paragan.schemes import asynchronous, shared_fakes, synchronous
from paragan.schemes.asynchronous.fakes import FakesReceiver, FakesSender
from paragan.schemes.asynchronous.player_step import StalenessLimit
from paragan.schemes.asynchronous.thread_step import ThreadLink
from paragan.schemes.asynchronous.two_players import DiscriminatorStep, GeneratorStep
from tests.laws.small_gan import batches, difference, network, play, small_game

STEPS, WAIT_S = 4, 60.0
LIKE = {"image": torch.empty(1, 8, 8, dtype=torch.float64), "label": torch.empty((), dtype=torch.int64)}


def limit(staleness, k=1, **options):
    chosen = asynchronous.Options(staleness=staleness, fall_back=None, **options)
    return StalenessLimit(options=chosen, k=k, timeout_s=WAIT_S)


def run_halves(g, d, steps, k=1, delay=lambda: None):
    """Run G's side and D's to the end. k: batches of a step."""
    errors = []

    def run(side):
        stream = batches()
        try:
            for _ in range(steps):
                delay()
                side.step([next(stream) for _ in range(k)])
            if side is g:
                side.wait_for_d(steps)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(half,)) for half in (g, d)]
    [thread.start() for thread in threads]
    [thread.join(WAIT_S) for thread in threads]
    assert not errors and not any(thread.is_alive() for thread in threads), errors


def played(pace, steps, buffer=None, delay=lambda: None, order=None):
    """Both sides of one game, each with its own half, which share only the links. order: versions of G's opponents."""
    on_g, on_d = small_game(pace.k), small_game(pace.k)
    fakes, states = (ThreadLink(pace.options.staleness + 2, WAIT_S) for _ in range(2))
    counts = [step + 1 for step in range(steps)]
    pace = pace if order is None else replace(pace, orders={Side.G: order, Side.D: counts})
    generator = GeneratorStep(on_g, Snapshot(network(Side.D)), FakesSender([fakes]), states, pace)
    critic = DiscriminatorStep(on_d, FakesReceiver([fakes], LIKE), [states], pace)
    if buffer is not None:  # an empty one is false
        critic.buffer = buffer
    run_halves(generator, critic, steps, pace.k, delay)
    assert on_g.d.version == on_d.g.version == 0  # the half that sits elsewhere
    assert generator.predicted is None or _predicts(generator, on_d.d.net)  # as a run that resumes here
    return on_g.g, on_d.d, generator, critic


def _predicts(half, net):
    """Whether G's half expects these weights in the next step."""
    predicted = half.predicted.network().module.state_dict()
    return all(value.equal(predicted[name]) for name, value in net.state_dict().items())


@pytest.mark.parametrize(("scheme", "k"), [(synchronous, 1), (synchronous, 2), (shared_fakes.Scheme(), 1)])
def test_no_delay_is_synchrony(scheme, k):
    plain = small_game(k)
    play(plain, scheme, batches(), STEPS)
    g, d, generator, critic = played(limit(0, k, reuse=scheme is not synchronous), STEPS)
    assert difference(plain, {Side.G: g.net, Side.D: d.net}) == 0
    for mine, expected in ((g, plain.g), (d, plain.d)):
        assert (mine.version, int(mine.updates)) == (expected.version, int(expected.updates))
    assert all(value.equal(plain.g.ema.net.state_dict()[name]) for name, value in g.ema.net.state_dict().items())
    assert set(generator.log.lags) == set(critic.log.lags) == {0}
    assert generator.opponent.version == d.version


@pytest.mark.parametrize("bound", [1, 3])
@pytest.mark.parametrize("cached", [0.0, 0.5])
def test_the_bound_is_kept_whatever_the_delays(bound, cached):
    """Each side is now and then late; both have been as far apart as they may be."""
    draw = random.Random(bound)
    buffer = Buffer(seed=0, cached=cached, max_age=bound)
    _, _, generator, critic = played(limit(bound), 60, buffer, lambda: time.sleep(draw.choice([0, 0, 0, 0.03])))
    assert max(generator.log.lags) == bound
    assert max(critic.log.lags) <= bound  # the newest is never behind, the cached is
    assert sum(generator.log.lags.values()) == 60


def test_wait_ends_at_time_out_and_at_a_stop():
    for pace in (replace(limit(0), timeout_s=0.3), replace(limit(0), stopped=lambda: True)):
        fakes, states = ThreadLink(), ThreadLink()
        side = GeneratorStep(small_game(), Snapshot(network(Side.D)), FakesSender([fakes]), states, pace)
        began = time.monotonic()
        with pytest.raises(RankError, match="no message from D"):
            side.step([next(batches())])
        assert time.monotonic() - began < 10


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


def test_predicted_opponent_predicts_no_change_after_a_reset():
    opponent = PredictedOpponent(Snapshot(Numbers(1.0, 0.0)), 1.0)
    opponent.update(message(3.0, 0.0), 1)
    opponent.reset()
    assert opponent.network().module.weight.tolist() == [3.0, -3.0]
    opponent.update(message(4.0, 0.0), 2)
    assert opponent.network().module.weight.tolist() == [5.0, -5.0]


def test_predicted_opponent_has_the_exact_state_of_a_version_that_was_rounded():
    opponent = PredictedOpponent(Snapshot(Numbers(1.0, 0.0)), 1.0)
    opponent.update(message(3.0, 0.0), 1)
    opponent.snapshot.is_exact = False
    opponent.update(message(3.25, 0.0), 1)
    assert opponent.network().module.weight.tolist() == [3.25, -3.25]


def by_hand(factor):
    """The same game in one loop: G's opponent is D before its update, and `factor` times its last change."""
    gan = small_game()
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
    return gan


@pytest.mark.parametrize("factor", [0.0, 1.0])
def test_asynchronous_game_with_prediction_is_the_plain_loop(factor):
    g, d, *_ = played(limit(1, predict=factor), STEPS, order=list(range(STEPS)))
    assert difference(by_hand(factor), {Side.G: g.net, Side.D: d.net}) <= 1e-12


def test_asynchronous_game_without_delay_ignores_prediction():
    order = [step + 1 for step in range(STEPS)]
    ends = [played(limit(0, predict=factor), STEPS, order=order)[0].net.state_dict() for factor in (0.0, 1.0)]
    assert all(value.equal(ends[1][name]) for name, value in ends[0].items())


@pytest.mark.parametrize("state_dtype", ["exact", "bf16"])
def test_paused_game_predicts_no_change_as_a_resumed_one(state_dtype):
    """A checkpoint has no earlier weights: after a pause both continue from equal states."""
    options = asynchronous.Options(staleness=1, predict=1.0, state_dtype=state_dtype)
    scheme = asynchronous.Scheme(options)
    gan = small_game()
    stream = batches()
    for _ in range(STEPS):
        scheme.step(gan, stream)
    half = scheme._session.generator
    scheme._session._wait_for_g(0)
    half._wait_for_version(gan.d.version)  # exact states: the pause needs no further message
    scheme.quiesce()
    assert _predicts(half, gan.d.net)
    scheme.step(gan, stream)
    scheme._session._wait_for_g(0)
    half._wait_for_version(gan.d.version)
    assert not _predicts(half, half.opponent.net)
    scheme.close()
