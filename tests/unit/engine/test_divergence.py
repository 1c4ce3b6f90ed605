"""Sessions in which a player makes no update: skips of an earlier session count, but not for it alone."""

from types import SimpleNamespace

import pytest
import torch

from paragan.core.errors import DivergedError
from paragan.engine.divergence import SkipMonitor


def player(due_turns, updates):
    return SimpleNamespace(num_skipped=lambda: 0, due_turns=due_turns, updates=torch.tensor(updates))


def resumed(due_turns, updates, last_applied):
    g = player(due_turns, updates)
    monitor = SkipMonitor({"g": g})
    monitor.last_applied |= {"g": last_applied}
    return g, monitor


@pytest.mark.parametrize("last_applied", [(10, 8), (8, 8), (3, 8)])
def test_raise_if_idle_session_of_skips_after_skips_is_an_error_at_its_end(last_applied):
    g, monitor = resumed(10, 8, last_applied)
    g.due_turns += 5
    monitor.raise_if_idle(15)
    with pytest.raises(DivergedError, match="g: no update"):
        monitor.raise_if_idle(15, at_the_end=True)


@pytest.mark.parametrize(("due_turns", "updates"), [(0, 0), (5, 1), (2, 2)])
def test_raise_if_idle_session_without_turns_or_with_an_update_ends(due_turns, updates):
    g, monitor = resumed(10, 8, (8, 8))
    g.due_turns += due_turns
    g.updates += updates
    monitor.raise_if_idle(15, at_the_end=True)


def test_raise_if_idle_skips_before_a_kill_count_towards_the_limit():
    g, monitor = resumed(97, 8, (8, 8))
    g.due_turns += 10
    monitor.raise_if_idle(107)
    g.due_turns += 1
    with pytest.raises(DivergedError, match="last 100"):
        monitor.raise_if_idle(108)
