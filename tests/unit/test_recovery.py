"""From which edge a grid goes on when somebody is gone."""

from paragan.extensions.grid.workers.coordinator import RecoverySource, recovery_sources

LAST = ["a", "a", "b", "b"]


def test_recovery_resumes_at_the_newest_common_boundary():
    held = {"a": {6: [0, 1], 5: [0, 1, 2]}, "b": {5: [2, 3]}}
    edge, found = recovery_sources(held, LAST)
    assert edge == 5 and found == [RecoverySource(name, 5) for name in LAST]


def test_recovery_after_failure_uses_copies():
    held = {"a": {6: [0, 1, 3], 5: [0, 1, 2, 3]}, "c": {6: [2]}}
    assert recovery_sources(held, LAST) == (
        6,
        [RecoverySource("a", 6), RecoverySource("a", 6), RecoverySource("c", 6), RecoverySource("a", 6)],
    )


def test_recovery_without_a_state_of_a_cell_starts_over():
    assert recovery_sources({"a": {6: [0, 1]}}, LAST) == (0, [None] * 4)


def test_recovery_without_copies_uses_the_collected_states():
    held = {"a": {6: [0, 1]}, "coordinator": {4: [0, 1, 2, 3]}}
    assert recovery_sources(held, LAST) == (4, [RecoverySource("coordinator", 4)] * 4)


def test_recovery_with_different_boundaries_starts_at_the_oldest_cell():
    held = {"a": {9: [0, 1], 8: [0, 1], 7: [0, 1, 2]}, "b": {8: [2]}, "c": {6: [3], 9: []}}
    edge, found = recovery_sources(held, LAST, may_differ=True)
    assert edge == 6
    assert found == [RecoverySource("a", 7), RecoverySource("a", 7), RecoverySource("a", 7), RecoverySource("c", 6)]


def test_recovery_with_different_boundaries_restarts_only_missing_cells():
    edge, found = recovery_sources({"a": {3: [0, 1], 0: [0]}, "b": {3: [2]}}, LAST, may_differ=True)
    assert edge == 0 and found == [RecoverySource("a", 0), RecoverySource("a", 3), RecoverySource("b", 3), None]
