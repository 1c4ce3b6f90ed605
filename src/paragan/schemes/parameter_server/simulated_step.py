"""One step of a server and its workers on simulated time: which turns a worker waits for."""

from __future__ import annotations

from paragan.core.timeline import Timeline
from paragan.core.types import Side
from paragan.schemes.parameter_server.links import StalenessBound


def simulate_workers(timeline: Timeline, bound: StalenessBound) -> None:
    """Describe step number `timeline.step`: turns of all workers, and the server's answers."""
    made = {side: timeline.step * per_step for side, per_step in bound.per_step.items()}
    for side in bound.turns:
        if side is Side.D:
            timeline.load()
        for player, turns in made.items():
            timeline.server.pull(player, bound.required_turns(player, turns))
        timeline.compute(side)
        made[side] += 1
        timeline.server.push(side, made[side], bound.required_turns(side, made[side]))
