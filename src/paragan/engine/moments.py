"""Adam's moments: whether a past gradient holds a player still."""

from __future__ import annotations

from typing import Any

from paragan.core.shard import local_shard


def moment_ratio(optimizer: Any) -> float | None:
    """Return the norm of Adam's first moment over that of the root of its second, of local weights.

    About 1 without momentum, less with it. Towards 0: a past gradient was far larger than all that
    followed, so that the weights hardly change until it is forgotten (1 / (1 - beta2) updates for
    each factor of 1.6). None: no such moments.
    """
    states = [state for state in optimizer.state.values() if "exp_avg_sq" in state]
    first = sum(float(local_shard(state["exp_avg"]).float().square().sum()) for state in states)
    second = sum(float(local_shard(state["exp_avg_sq"]).float().sum()) for state in states)
    return (first / second) ** 0.5 if second > 0 else None
