"""What the exchange of genomes costs two worker processes of a 2x2 grid, over gloo on this machine.

    python -m benchmarks.cellular_exchange DATA_FOLDER [--pairs 31] [--batches 600]

Aims: at most 2 % of an iteration of 600 batches, at most 3 times a raw exchange of as many bytes, and 4 times faster
than pickled objects. Seconds by the clock, since most of it is waiting. Whole individuals travel, optimisers' memory
and all: 6.6 MB a cell. Weak scaling, one cell per process on cores of its own, needs 16 cores.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.cellular_ground import Line, grid, keep, mnist_words
from benchmarks.pairs import Ratio, compare
from paragan.coevolution.halo import Halo
from paragan.coevolution.population import Population
from paragan.transports.linked import Linked

OWNERS, WORKERS, CORES = (0, 0, 1, 1), 2, 16
SHARE = 0.02  # of an iteration


def work(data: Path, rank: int, port: int, pairs: int, batches: int) -> dict[str, object]:
    """One of both workers. Both make the same calls in the same order."""
    torch.set_num_threads(1)
    population = grid("2x2", 4, mnist_words(data))
    population.evolve()  # so that optimisers remember something
    population.cells = [cell for cell in population.cells if OWNERS[cell.number] == rank]
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    communicator = Linked(store, "exchange", rank, WORKERS, [1 - rank], most_bytes=1 << 34)

    def standings():
        return [cell.standing() for cell in population.cells]

    halo = Halo(communicator, OWNERS, population.topology, population.cells[0].centre, standings)
    mine = {cell.number: cell.centre for cell in population.cells}
    messages = [part for standing in standings() for part in standing.packed()]
    objects = [{side.value: dict(genome.tensors) for side, genome in centre.items()} for centre in mine.values()]

    def gather() -> None:
        halo.gather(mine, range(4), 0)
        halo.copies.clear()

    def pickled() -> None:
        data = torch.frombuffer(bytearray(pickle.dumps(objects)), dtype=torch.uint8)
        (came,) = communicator.exchange({1 - rank: [data]})[1 - rank]
        pickle.loads(came.numpy().tobytes())  # noqa: S301  # what is measured; it came from this program

    clock = time.perf_counter
    raw = compare(gather, lambda: communicator.exchange({1 - rank: messages}), pairs, clock=clock)
    objects_ratio = compare(pickled, gather, pairs, clock=clock)
    iteration = _iteration(population, halo, batches)
    communicator.close()
    total = sum(len(message) for message in messages)
    return {"raw": asdict(raw), "pickled": asdict(objects_ratio), "iteration": iteration, "bytes": total}


def _iteration(population: Population, halo: Halo, batches: int) -> dict[str, float]:
    """Seconds by the clock of one that counts: everything, and the gather with its wait for the slower worker."""
    population.options = replace(population.options, batches=batches)
    population.exchange = halo
    began = time.perf_counter()
    profile, _ = population.evolve()
    return {"wall_s": time.perf_counter() - began, "gather_s": profile.wall_s["gather"]}


def both(data: Path, pairs: int, batches: int) -> list[dict]:
    """What each of the two workers found."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    words = [sys.executable, "-m", "benchmarks.cellular_exchange", str(data)]
    more = ["--pairs", str(pairs), "--batches", str(batches), "--port", str(store.port), "--rank"]
    started = [subprocess.Popen([*words, *more, str(rank)], stdout=subprocess.PIPE, text=True) for rank in (0, 1)]
    try:
        return [json.loads(process.communicate(timeout=3600)[0].splitlines()[-1]) for process in started]
    finally:
        for process in started:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pairs", type=int, default=31)
    parser.add_argument("--batches", type=int, default=600)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--port", type=int)
    told = parser.parse_args()
    if told.rank is not None:
        print(json.dumps(work(told.data, told.rank, told.port, told.pairs, told.batches)))
        return
    found = both(told.data, told.pairs, told.batches)
    slower = max(found, key=lambda one: one["raw"]["a_seconds"])
    raw, pickled = Ratio(**slower["raw"]), Ratio(**slower["pickled"])
    share = raw.a_seconds / slower["iteration"]["wall_s"]
    print(f"share of an iteration of {told.batches} batches: {share:.2%} (asked at most {SHARE:.0%})")
    cores = len(os.sched_getaffinity(0))
    weak = f"not run: found {cores} cores, expected {CORES}, one for each cell of 4x4"
    print(f"weak scaling: {weak}")
    turned = Ratio(1 / raw.median, 1 / raw.high, 1 / raw.low, raw.b_seconds, raw.a_seconds, raw.pairs)
    lines = {"raw bytes / exchange": Line(turned, 1 / 3), "pickled objects / exchange": Line(pickled, 4.0)}
    note = f"two processes, 2 cells each, {slower['bytes']} bytes each way, gloo on one machine; seconds by the clock"
    told_share = {"batches": told.batches, "share": share, "asked": SHARE, "met": share <= SHARE}
    keep("exchange", lines, note, share=told_share, workers=found, weak_scaling=weak)


if __name__ == "__main__":
    main()
