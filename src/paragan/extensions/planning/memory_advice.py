"""Advice to a run whose memory did not suffice: what its plan counts, and what divides that between ranks."""

from __future__ import annotations

from paragan.core.errors import ParaganError
from paragan.extensions.planning.plan_run import PlanRequest, plan_run
from paragan.runs.run_request import RunRequest

_STATE = ("weights", "gradients", "optimizer", "ema")


def advise_on_memory(request: RunRequest) -> str:
    """Return what a step needs by its plan, and what divides it between ranks."""
    small = "lower train.batch or the model's width"
    if request.model is not None or request.config.grid is not None:
        return small
    try:
        memory = plan_run(PlanRequest(config=request.config, recipe=request.name)).memory
    except (ParaganError, RuntimeError, MemoryError):
        return small  # without the numbers
    state = sum(memory.terms.get(name, 0) for name in _STATE)
    needs = f"a step needs {memory.peak_bytes / 1e9:.2f} GB in addition to the libraries, by its plan"
    parts = f"{state / 1e9:.2f} GB of them for weights, gradients, optimizer and average"
    return (
        f"{needs}, {parts}: pass devices=2 g.strategy=zero3 d.strategy=zero3, or pipeline for both, "
        f"which divide these between ranks; or {small}"
    )
