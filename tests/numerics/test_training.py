"""Whole training against a plain torch loop in float64: losses, penalties, intervals, Adam, clipping, average."""

from dataclasses import replace

import pytest

from paragan.core import registry
from paragan.core.types import Side
from tests.laws.small_gan import distance
from tests.numerics.games import Game, batches, factory, library, state, step
from tests.numerics.plain import LOSSES, Loop

STEPS = 5
GAMES = {
    "nonsaturating, lazy R1 and R2": Game(
        loss="nonsaturating", k=2, d={"r1": {"weight": 0.7, "interval": 2}, "r2": {"weight": 0.4, "interval": 3}}
    ),
    "WGAN-GP": Game(loss="wasserstein", k=2, d={"gradient_penalty": {"weight": 3.0}}),
    "hinge, LeCam": Game(k=2, d={"lecam": {"weight": 0.6, "decay": 0.7, "warmup": 2}}),
    "hinge for both": Game(loss="hinge_both"),
    "LSGAN": Game(loss="least_squares", k=3),
    "RpGAN": Game(loss="relativistic", d={"r1": {"weight": 0.2}, "r2": {"weight": 0.2}}),
    "RaGAN": Game(loss="relativistic_average"),
    "minimax": Game(loss="minimax"),
}
COMPARED = {"hinge, LeCam", "RaGAN"}  # the whole batch, so without micro-batches


@pytest.mark.parametrize(("name", "parts"), [*((n, 1) for n in GAMES), *((n, 4) for n in GAMES if n not in COMPARED)])
def test_training_is_the_plain_loop(name, parts):
    game, loop = replace(GAMES[name], parts=parts), Loop(GAMES[name])
    gan, stream = library(game), batches()
    reports = [step(game, gan, stream).read() for _ in range(STEPS)]
    loop.run(STEPS)
    nets = {"g/net": loop.nets[Side.G], "g/ema": loop.average, "d/net": loop.nets[Side.D]}
    expected = {f"{place}/{key}": value for place, net in nets.items() for key, value in net.state_dict().items()}
    found = state(gan)
    assert distance({key: found[key] for key in expected}, expected) <= 1e-12
    for report, losses in zip(reports, loop.losses, strict=True):
        assert {key: report[key] for key in report if "/loss/" in key} == pytest.approx(losses, rel=1e-5, abs=1e-6)
    for side, net in loop.nets.items():
        assert distance(dict(net.state_dict()), dict(factory(side, game)().state_dict())) > 1e-3


def test_every_loss_has_a_plain_formula():
    assert set(LOSSES) == set(registry.names("losses")) == {game.loss for game in GAMES.values()}
