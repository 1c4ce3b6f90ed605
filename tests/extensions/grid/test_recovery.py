"""From which edge a grid goes on when somebody is gone."""

from paragan.extensions.grid.workers.coordinator import recovery_sources

LAST = ["a", "a", "b", "b"]


def test_recovery_resumes_at_the_newest_common_boundary():
    held = {"a": {6: [0, 1], 5: [0, 1, 2]}, "b": {5: [2, 3]}}
    edge, found = recovery_sources(held, LAST)
    assert edge == 5 and found == LAST


def test_recovery_after_failure_uses_copies():
    held = {"a": {6: [0, 1, 3], 5: [0, 1, 2, 3]}, "c": {6: [2]}}
    assert recovery_sources(held, LAST) == (6, ["a", "a", "c", "a"])


def test_recovery_without_a_state_of_a_cell_starts_over():
    assert recovery_sources({"a": {6: [0, 1]}}, LAST) == (0, [None] * 4)


def test_recovery_without_copies_uses_the_collected_states():
    held = {"a": {6: [0, 1]}, "coordinator": {4: [0, 1, 2, 3]}}
    assert recovery_sources(held, LAST) == (4, ["coordinator"] * 4)
