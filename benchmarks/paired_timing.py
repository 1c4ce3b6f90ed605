"""Interleaved pairs.

Two pieces of work in turn, CPU seconds at one thread, the ratio pair by pair with its 95 % interval.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch

from benchmarks.record import write


@dataclass(frozen=True)
class Ratio:
    """time of `a` / time of `b`. low, high: 95 % bootstrap interval of the median. seconds: medians of one call."""

    median: float
    low: float
    high: float
    a_seconds: float
    b_seconds: float
    pairs: int


def compare(
    a: Callable[[], object],
    b: Callable[[], object],
    pairs: int = 21,
    warm_up: int = 2,
    clock: Callable[[], float] = time.process_time,
    rest: Callable[[], object] = lambda: None,
) -> Ratio:
    """`a` and `b` do equal amounts of work per call; the order within a pair alternates.

    clock: of the processor unless what is measured is waiting. rest: called after each call, and not measured.
    """
    torch.set_num_threads(1)
    for _ in range(warm_up):
        a(), rest(), b(), rest()
    times = []
    for number in range(pairs):
        if number % 2:
            seconds_b = _seconds(b, clock, rest)
            times.append((_seconds(a, clock, rest), seconds_b))
        else:
            times.append((_seconds(a, clock, rest), _seconds(b, clock, rest)))
    return ratio_of(times)


def ratio_of(times: Sequence[Sequence[float]]) -> Ratio:
    """Return the median ratio of pairs of seconds, with its 95 % interval (bootstrap)."""
    ratios = [x / y for x, y in times]
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return Ratio(
        statistics.median(ratios),
        medians[50],
        medians[1949],
        statistics.median(x for x, _ in times),
        statistics.median(y for _, y in times),
        len(ratios),
    )


def keep(name: str, results: dict[str, Ratio], note: str, of: str = "CPU") -> None:
    """Print, and write to `results/` with date and machine kind. of: what the seconds are of."""
    for label, ratio in results.items():
        print(
            f"{label}: {ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]  "
            f"{ratio.a_seconds:.4f} s / {ratio.b_seconds:.4f} s {of}"
        )
    ratios = {label: asdict(ratio) for label, ratio in results.items()}
    write(name, {"threads": 1, "note": note, "ratios": ratios})


def _seconds(work: Callable[[], object], clock: Callable[[], float], rest: Callable[[], object]) -> float:
    start = clock()
    work()
    seconds = clock() - start
    rest()
    return seconds
