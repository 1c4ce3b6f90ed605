"""One asynchronous step on simulated time: what each side waits for, by the bounds of the scheme."""

from __future__ import annotations

from paragan.core.timeline import Timeline
from paragan.core.types import Side
from paragan.schemes._lag import LagBound


def simulate(timeline: Timeline, limits: LagBound) -> None:
    """Describe D's step number `timeline.step`, and the update of G that begins with it."""
    step = timeline.step
    if limits.reuse:
        timeline.generate()
        timeline.send_fakes(step)
    else:
        for _ in range(limits.k):
            timeline.generate()
            timeline.send_fakes(step)
    timeline.wait(Side.D, limits.required_fakes(step))
    for _ in range(limits.k):
        timeline.load()
        timeline.update(Side.D)
    timeline.send_state(step + 1)
    timeline.wait(Side.G, limits.required_step(step + 1))
    timeline.update(Side.G, has_fakes=limits.reuse)
