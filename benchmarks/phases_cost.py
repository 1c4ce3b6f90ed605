"""Cost of phase times and the watchdog: CPU seconds of steps with both against steps without either.

Aim: at most 1.01. On a machine with other work the ratio of pairs is too coarse for that, so the cost is also computed:
changes of phase per step, times the time of one, by the time of a step. python -m benchmarks.phases_cost [pairs]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.paired_timing import compare
from benchmarks.record import write
from paragan import build
from paragan.config import read_recipe
from paragan.core.dist import ALONE
from paragan.core.phases import Phase, PhaseClock, phase, set_thread_clock
from paragan.core.roles import colocated_roles
from paragan.engine.phase_log import PhaseLog
from paragan.engine.watchdog import HangLimits, Watchdog

STEPS = 1  # of a call, and between two log points: pairs that are close in time differ less
CHANGES = 20_000


def steps() -> Callable[[], None]:
    """Return a function that makes STEPS steps of the recipe `digits`."""
    config = read_recipe("digits", ["train.threads=1", "evaluation.features=null"])
    trainer = build.trainer(config, Path(tempfile.mkdtemp()), lambda line: None, lambda: False)

    def run() -> None:
        for _ in range(STEPS):
            trainer.scheme.step(trainer.gan, trainer.batches)

    return run


def measured(run: Callable[[], None], clock: PhaseClock) -> Callable[[], None]:
    """Return the function with what a run measures around it."""
    log = PhaseLog(clock, colocated_roles(ALONE))
    limits = HangLimits(floor_s=60.0)

    def with_phases() -> None:
        set_thread_clock(clock)
        with Watchdog(clock, limits, lambda limit: None):
            run()
        for _ in range(STEPS):
            log.count_step()
        log.read()
        set_thread_clock(None)

    return with_phases


def change_s() -> float:
    """Return the CPU seconds of one change of phase: the least of 15 measurements."""
    found = []
    set_thread_clock(PhaseClock())
    for _ in range(15):
        began = time.process_time()
        for _ in range(CHANGES // 2):
            with phase(Phase.DATA):
                pass
        found.append((time.process_time() - began) / CHANGES)
    set_thread_clock(None)
    return min(found)


def main(pairs: int) -> None:
    torch.set_num_threads(1)
    run = steps()
    clock = PhaseClock()
    with_phases = measured(run, clock)
    with_phases()
    before = clock.changes
    with_phases()
    per_step = (clock.changes - before) / STEPS
    ratio = compare(with_phases, run, pairs)
    one_s = change_s()
    share = per_step * one_s / (ratio.b_seconds / STEPS)
    print(f"pairs: {ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]")
    print(f"computed: {per_step:.1f} changes of phase per step of {1e6 * one_s:.2f} us each, {share:.2%} of a step")
    computed = {"changes_per_step": per_step, "change_s": one_s, "share_of_step": share}
    note = "recipe digits; phases and watchdog / neither; other work on the machine"
    write("phases-cost", {"threads": 1, "note": note, "ratios": {"digits": asdict(ratio)}, "computed": computed})


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 401)
