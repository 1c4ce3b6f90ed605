"""One asynchronous step on simulated time: what each side waits for, by the bounds of the scheme."""

from __future__ import annotations

from paragan.core.timeline import Timeline
from paragan.core.types import Side
from paragan.schemes._lag import LagBound


def simulate(timeline: Timeline, limits: LagBound, state_share: float = 1.0, fakes_share: float = 1.0) -> None:
    """Describe D's step number `timeline.step`, and the update of G that begins with it.

    state_share, fakes_share: bytes of D's state and of G's images, of the exact ones.
    """
    step = timeline.step
    for _ in range(1 if limits.reuse else limits.k):
        timeline.generate()
        timeline.send_fakes(step, fakes_share)
    timeline.wait(Side.D, limits.required_fakes(step))
    for _ in range(limits.k):
        timeline.load()
        timeline.update(Side.D)
    if (step + 1) % limits.refresh == 0:
        timeline.send_state(step + 1, state_share)
    required = limits.required_step(step + 1)
    timeline.wait(Side.G, -(-required // limits.refresh) * limits.refresh)
    timeline.update(Side.G, has_fakes=limits.reuse)
