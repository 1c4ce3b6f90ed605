"""Steps of all games: what they read back from the device, what they leave behind, and what terms remember."""

import gc
from dataclasses import replace

import pytest
import torch

from paragan.core.types import Side
from paragan.game.state import restore, state_of
from tests.distributed import cases_numerics
from tests.laws.small_gan import distance
from tests.laws.test_no_sync import HostReads
from tests.numerics import test_training
from tests.numerics.games import SCHEMES, Game, batches, library, state, step

GAMES = {**test_training.GAMES, **cases_numerics.GAMES}
LARGE = ("contragan", "auxiliary")  # networks, in their own scheme alone
ON_THE_HOST = {"aten.nonzero.default"}  # of approximate R1 and R2: of numbers of rows, which never leave the host


def fits(game: Game) -> bool:
    """Whether a game is played in every scheme."""
    return game.scheme == "synchronous" and game.nets not in LARGE


STATEFUL = ["hinge, LeCam", "StyleGAN2", "ADA, lazy R1", "balancer, lazy term"]


@pytest.mark.parametrize(  # daily: every game in its scheme, and those with state in all
    ("name", "scheme"),
    [
        pytest.param(name, scheme, marks=() if scheme == game.scheme or name in STATEFUL else pytest.mark.slow)
        for name, game in GAMES.items()
        for scheme in SCHEMES
        if scheme == game.scheme or fits(game)
    ],
)
def test_a_step_reads_nothing_back(name, scheme):
    game = replace(GAMES[name], scheme=scheme)
    gan, stream = library(game), batches(bad=game.bad)
    step(game, gan, stream)  # probes of torch, once per process
    with HostReads() as reads:
        for _ in range(3):  # lazy terms are due in some of them
            step(game, gan, stream)
    allowed = ON_THE_HOST if "approximate" in name else set()
    assert not {kind for kind in reads.seen if kind not in allowed}


@pytest.mark.parametrize("name", ["ADA, lazy R1", "LeCam, extragradient", "StyleGAN2, shared fakes"])
def test_steps_leave_nothing_behind(name):
    game = GAMES[name]
    gan, stream = library(game), batches()

    def counts() -> tuple[int, int]:
        gc.collect()
        alive = gc.get_objects()
        return len(alive), sum(type(one) is torch.Tensor for one in alive)

    found = []
    for _ in range(3):
        for _ in range(8):  # every lazy term is due
            step(game, gan, stream)
        found.append(counts())
    assert found[2][1] == found[1][1]
    assert abs(found[2][0] - found[1][0]) < 50  # caches of Python, not one object per step


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", STATEFUL)
def test_what_terms_of_a_custom_loop_remember_is_state_of_its_player(name, scheme):
    """A game that a program makes, without a recipe: nothing is attached by hand. Saved half-way, it ends equal."""
    game = replace(GAMES[name], scheme=scheme)
    gan, resumed = library(game), library(game)
    owners = {Side.G: [*gan.g_penalties, gan.balancer], Side.D: [*gan.d_penalties, gan.augment]}
    for player in (gan.g, gan.d):
        states = {owner.name: owner.state for owner in owners[player.side] if owner is not None}
        expected = {f"{owner}/{name}": value for owner, held in states.items() for name, value in held.items()}
        assert player.state.keys() == expected.keys()
        assert all(player.state[key] is value for key, value in expected.items())
    assert {**gan.g.state, **gan.d.state}
    stream = batches()
    for _ in range(4):
        step(game, gan, stream)
    before = state(gan)
    assert any("/state/" in key and bool(value.abs().max() > 0) for key, value in before.items())
    for one, other in ((gan.g, resumed.g), (gan.d, resumed.d)):
        pieces, values = state_of(one)
        restore(other, cases_numerics.stored_copy(pieces), values)
    assert distance(state(resumed), before) == 0
    again = batches(start=4 * game.k)
    for _ in range(3):
        step(game, gan, stream)
        step(game, resumed, again)
    after = state(gan)
    assert distance(state(resumed), after) == 0
    assert any("/state/" in key and not torch.equal(value, before[key]) for key, value in after.items())
    if name == "hinge, LeCam":  # what is looked ahead at is no update
        assert int(gan.d.state["lecam/updates"]) == int(gan.d.updates)
