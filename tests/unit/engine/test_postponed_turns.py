"""Turns that an interval postpones are no skipped updates: no message, no rollback, no end."""

from types import SimpleNamespace

import pytest
import torch

from paragan.core.types import Side
from paragan.engine.divergence import SkipMonitor
from tests.tiny_run import train

START = "adversarial.start_kimg=100"  # until then G trains by its penalty alone
SCHEMES = {"synchronous": 4, "shared_fakes": 3, "asynchronous": 4, "extragradient": 4}
GAMES = {
    name: (f"scheme.name={name}", f"penalties=[{{name: orthogonal, side: g, weight: 0.1, interval: {interval}}}]")
    for name, interval in SCHEMES.items()
} | {"beside r1": ("penalties=[{name: orthogonal, side: g, weight: 0.1, interval: 3}, r1]",)}


@pytest.mark.parametrize("game", GAMES)
def test_postponed_turns_are_neither_skips_nor_idleness(game, tmp_path):
    g = train(tmp_path / "run", START, *GAMES[game], "train.kimg=0.128").gan.g
    assert g.version == 8
    assert int(g.updates) == g.due_turns < 8
    assert g.num_skipped() == 0
    monitor = SkipMonitor({"g": g})
    g.version += 1000  # of an interval of 1000
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
    assert monitor.messages() == ["warning: g: updates skipped, because their gradients were not finite: 1"]
    assert monitor.messages() == []


def test_an_update_that_another_thread_counts_is_no_skip(tmp_path):
    """G's thread counts while the training thread reads: never more due turns than updates."""
    player = train(tmp_path / "run", "train.kimg=0.016").players[Side.G.value]
    read = []

    class Taken(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            with torch._C.DisableTorchFunctionSubclass():
                read.append(player.num_skipped())  # between the two counts
            return super().__torch_function__(func, types, args, kwargs or {})

    player._count(torch.ones((), dtype=torch.bool).as_subclass(Taken), 16)
    assert read and not any(read)
    assert player.num_skipped() == 0


def test_a_count_that_was_read_too_early_is_not_reported_twice():
    counts = iter((0, 1, 0, 1, 2))
    player = SimpleNamespace(num_skipped=lambda: next(counts), due_turns=0, updates=torch.zeros((), dtype=torch.int64))
    monitor = SkipMonitor({"g": player})
    assert [len(monitor.messages()) for _ in range(4)] == [1, 0, 0, 1]
