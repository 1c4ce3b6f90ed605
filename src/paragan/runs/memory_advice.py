"""Advice for a run that does not fit into the memory of one process, by its plan."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING

from paragan.core.errors import ConfigError, ParaganError, is_out_of_memory

if TYPE_CHECKING:
    from paragan.runs.run_request import RunRequest

_STATE = ("weights", "gradients", "optimizer", "ema")


def run_with_memory_advice(request: RunRequest, run: Callable[[], int]) -> int:
    """Return the result of `run`; if memory runs out in it, raise a `ConfigError` with advice."""
    try:
        return run()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        found = str(error).partition("\n")[0][:200] or type(error).__name__
    # Outside of the handler, because the error refers to what fills the memory.
    gc.collect()
    raise ConfigError(f"out of memory: {found}; {_advice(request)}")


def _advice(request: RunRequest) -> str:
    from paragan.runs.plan_run import PlanRequest, plan_run

    small = "lower train.batch or the model's width"
    if request.model is not None or request.config.grid is not None:
        return small
    try:
        memory = plan_run(PlanRequest(request.config, request.name)).memory
    except (ParaganError, RuntimeError, MemoryError):
        return small  # without the numbers
    state = sum(memory.terms.get(name, 0) for name in _STATE)
    needs = f"a step needs {memory.peak_bytes / 1e9:.2f} GB in addition to the libraries, by its plan"
    parts = f"{state / 1e9:.2f} GB of them for weights, gradients, optimizer and average"
    return (
        f"{needs}, {parts}: pass devices=2 g.strategy=zero3 d.strategy=zero3, or pipeline for both, "
        f"which divide these between ranks; or {small}"
    )
