"""Turns that an interval postpones are no skipped updates: no message, no rollback, no end."""

import pytest

from paragan.core.types import Side
from paragan.engine.divergence import SkipMonitor
from tests.tiny_run import train

START = "adversarial.start_kimg=100"  # until then G trains by its penalty alone
EVERY_FOURTH = "penalties=[{name: orthogonal, side: g, weight: 0.1, interval: 4}]"
GAMES = {
    "orthogonal": (START, "penalties=[{name: orthogonal, side: g, weight: 0.001, interval: 4}]"),
    "shared fakes": (
        START,
        "scheme.name=shared_fakes",
        "penalties=[{name: orthogonal, side: g, weight: 0.1, interval: 3}]",
    ),
    "asynchronous": (
        START,
        "scheme.name=asynchronous",
        "penalties=[{name: orthogonal, side: g, weight: 0.1, interval: 4}]",
    ),
    "extragradient": (
        START,
        "scheme.name=extragradient",
        "penalties=[{name: orthogonal, side: g, weight: 0.1, interval: 4}]",
    ),
    "orthogonal beside r1": (START, "penalties=[{name: orthogonal, side: g, weight: 0.1, interval: 3}, r1]"),
}


@pytest.fixture(params=GAMES)
def trained(request, tmp_path):
    """A trainer after eight steps."""
    return train(tmp_path / "run", *GAMES[request.param], "train.kimg=0.128")


def test_postponed_turns_are_no_skips(trained):
    g = trained.gan.g
    assert g.version == 8
    assert int(g.updates) == g.due_turns < 8
    assert g.num_skipped() == 0


def test_a_player_whose_turns_are_postponed_for_long_is_not_idle(trained):
    monitor = SkipMonitor({"g": trained.gan.g})
    trained.gan.g.version += 1000  # of an interval of 1000
    assert monitor.messages() == []
    monitor.raise_if_idle(1000, at_the_end=True)


def test_a_schedule_counts_updates_and_not_postponed_turns(tmp_path):
    words = ("penalties=[{name: orthogonal, side: g, weight: 0.1, interval: 2}]", "g.schedule={name: linear, end: 100}")
    trainer = train(tmp_path / "run", START, *words, "train.kimg=0.128")
    g = trainer.gan.g
    assert (g.version, int(g.updates)) == (8, 4)
    assert g.optimizer.param_groups[0]["lr"] == pytest.approx(g.policy.lr * (1 - 3 / 100))  # that of the fourth update


def test_a_skipped_update_between_postponed_turns_counts_once(tmp_path):
    trainer = train(tmp_path / "run", "train.kimg=0.016")
    player = trainer.players[Side.G.value]
    monitor = SkipMonitor({"g": player})
    player.version += 7
    player.due_turns += 1
    assert monitor.messages() == ["g: 1 updates skipped, their gradients were not finite"]
    assert monitor.messages() == []
