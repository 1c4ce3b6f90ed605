"""CPU seconds of a forecast by number of workers, and of 1,024 workers over 64: interleaved pairs at one thread.

A forecast is five simulations of 200 or 220 steps, with jitter, of the
published BigGAN (`published_scaling.py`) on 10 Gbit/s, with 40 collectives of batch norm in each update.

python -m benchmarks.simulation_cost [pairs]
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, replace
from functools import partial

import torch

from benchmarks.paired_timing import Ratio, compare
from benchmarks.published_scaling import BATCH, WORKERS, profile
from benchmarks.record import write
from paragan.core.types import Side
from paragan.extensions.planning.cluster import Cluster, find_interconnect
from paragan.extensions.planning.forecast import forecast
from paragan.extensions.planning.plan import Goal
from paragan.extensions.planning.simulation import GameCosts
from paragan.game.scheme import FunctionScheme, Scheme
from paragan.parallel import Strategy, ddp, local_sgd, zero3
from paragan.schemes import asynchronous, synchronous

COUNTS = (64, 128, 256, 512, 1024, 2048, 4096)
FEW, MANY = 64, 1024
MOST_SECONDS = 10.0  # of MANY workers
NORMS = 40
SYNCHRONOUS = FunctionScheme(synchronous.step)
CASES: dict[str, tuple[Scheme, Strategy]] = {
    "synchronous, ddp": (SYNCHRONOUS, ddp.Strategy()),
    "synchronous, local_sgd, H = 2": (SYNCHRONOUS, local_sgd.Strategy(local_sgd.Options(every=2))),
    "synchronous, zero3": (SYNCHRONOUS, zero3.Strategy()),
    "asynchronous, ddp": (asynchronous.Scheme(), ddp.Strategy()),
}


def simulated_game(scheme: Scheme, strategy: Strategy) -> GameCosts:
    """The published game with norms, two images on every worker."""
    measured = profile()
    g, d = (replace(player, norms=NORMS, norm_bytes=1 << 16) for player in (measured.g, measured.d))
    costs = replace(measured, g=g, d=d, generate_norms=NORMS // 2)
    return GameCosts(
        profile=costs, scheme=scheme, exchanges=dict.fromkeys(Side, strategy.exchanges), batch=BATCH // WORKERS
    )


def forecast_of(game: GameCosts, workers: int) -> None:
    """One forecast, with every cause of loss."""
    forecast(game, Cluster(workers=workers, network=find_interconnect("ethernet-10g"), jitter=0.02), Goal(1000))


def cpu_seconds(game: GameCosts, workers: int, repeats: int = 3) -> float:
    """CPU seconds of a forecast, the least of some."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        forecast_of(game, workers)
        times.append(time.process_time() - began)
    return min(times)


def ratio_of(game: GameCosts, pairs: int) -> Ratio:
    """CPU seconds of many workers over those of few."""
    return compare(partial(forecast_of, game, MANY), partial(forecast_of, game, FEW), pairs, warm_up=1)


def main(pairs: int) -> None:
    torch.set_num_threads(1)
    rows = {}
    for name, (scheme, strategy) in CASES.items():
        game = simulated_game(scheme, strategy)
        ratio = ratio_of(game, pairs)
        seconds = {f"{count:,}": round(cpu_seconds(game, count), 3) for count in COUNTS}
        rows[name] = {"ratio": asdict(ratio), "seconds": seconds}
        missed = "" if ratio.a_seconds < MOST_SECONDS else "  MISSED"
        span = f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
        print(f"{name}: {span}, {ratio.a_seconds:.2f} s / {ratio.b_seconds:.2f} s{missed}; {seconds}", flush=True)
    note = f"CPU seconds of a forecast; ratio of {MANY:,} to {FEW} workers, {pairs} interleaved pairs; see the module"
    write("simulation-cost", {"threads": 1, "note": note, "limit_s": MOST_SECONDS, "rows": rows})


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
