"""Law: with a staleness of 0 the two sides, each in a thread of its own, are the plain game, bit for bit.

Their fakes not reused: `synchronous`; reused: `shared_fakes`. And the bound is kept, whatever the delays.
"""

import random
import time
from dataclasses import replace

import pytest
import torch

from paragan.core.errors import RankError
from paragan.core.types import Side
from paragan.game.buffer import Buffer, BufferOptions
from paragan.game.snapshot import Snapshot
from paragan.parallel import none
from paragan.schemes import shared_fakes, synchronous
from paragan.schemes.asynchronous import Options
from paragan.schemes.asynchronous.fakes import FakesReceiver, FakesSender
from paragan.schemes.asynchronous.player_step import StalenessLimit
from paragan.schemes.asynchronous.thread_step import ThreadLink
from paragan.schemes.asynchronous.two_players import DiscriminatorStep, GeneratorStep
from tests.laws.small_gan import batches, game, network, play, player
from tests.laws.two_halves import run_halves

STEPS, WAIT_S = 4, 60.0
LIKE = {"image": torch.empty(1, 8, 8, dtype=torch.float64), "label": torch.empty((), dtype=torch.int64)}


def limit(staleness, k=1, reuse=True):
    return StalenessLimit(options=Options(staleness=staleness, reuse=reuse, fall_back=None), k=k, timeout_s=WAIT_S)


def seats(k):
    return (player(side, none.Strategy(), per_step=k if side is Side.D else 1) for side in Side)


def played(pace, steps, buffer=None, delay=lambda: None):
    """Both sides of one game, each with its own half of it; they share nothing but the links."""
    on_g, on_d = game(*seats(pace.k)), game(*seats(pace.k))
    fakes, states = (ThreadLink(pace.options.staleness + 2, WAIT_S) for _ in range(2))
    generator = GeneratorStep(Snapshot(network(Side.D)), FakesSender([fakes]), states, pace)
    critic = DiscriminatorStep(Buffer(buffer or BufferOptions(), 0), FakesReceiver([fakes], LIKE), [states], pace)
    run_halves((generator, on_g), (critic, on_d), steps, pace.k, delay)
    assert on_g.d.version == on_d.g.version == 0  # the half that sits elsewhere
    return on_g.g, on_d.d, generator, critic


@pytest.mark.parametrize(("scheme", "k"), [(synchronous, 1), (synchronous, 2), (shared_fakes.Scheme(), 1)])
def test_no_delay_is_synchrony(scheme, k):
    plain = game(*seats(k))
    play(plain, scheme, batches(), STEPS)
    g, d, generator, critic = played(limit(0, k, reuse=scheme is not synchronous), STEPS)
    for mine, expected in ((g, plain.g), (d, plain.d)):
        assert (mine.version, int(mine.updates)) == (expected.version, int(expected.updates))
        theirs = expected.net.state_dict()
        assert all(value.equal(theirs[name]) for name, value in mine.net.state_dict().items())
    assert all(value.equal(plain.g.ema.net.state_dict()[name]) for name, value in g.ema.net.state_dict().items())
    assert set(generator.log.lags) == set(critic.log.lags) == {0}
    assert generator.opponent.version == d.version


@pytest.mark.parametrize("bound", [1, 3])
@pytest.mark.parametrize("cached", [0.0, 0.5])
def test_the_bound_is_kept_whatever_the_delays(bound, cached):
    """Each side is now and then late; both have been as far apart as they may be."""
    draw = random.Random(bound)
    options = BufferOptions(cached=cached, max_age=bound)
    _, _, generator, critic = played(limit(bound), 60, options, lambda: time.sleep(draw.choice([0, 0, 0, 0.03])))
    assert max(generator.log.lags) == bound
    assert max(critic.log.lags) <= bound  # the newest is never behind, the cached is
    assert sum(generator.log.lags.values()) == 60


def test_wait_ends_at_time_out_and_at_a_stop():
    for pace in (replace(limit(0), timeout_s=0.3), replace(limit(0), stopped=lambda: True)):
        fakes, states = ThreadLink(), ThreadLink()
        side = GeneratorStep(Snapshot(network(Side.D)), FakesSender([fakes]), states, pace)
        began = time.monotonic()
        with pytest.raises(RankError, match="no message from D"):
            side.step(game(*seats(1)), [next(batches())])
        assert time.monotonic() - began < 10
