"""What large pages of memory give a step on a processor (torch's own switch, THP_MEM_ALLOC_ENABLE).

    python -m benchmarks.step_pages --net sngan|biggan|pix2pix [--pairs 15]

A process with them and one without make the same steps in turn; CPU seconds of theirs. Linux hands out memory in pages
of 4 KiB, and a step of these networks needs some 200,000 of them, and fewer where it gives 2 MiB at once.
"""

from __future__ import annotations

import argparse
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection

import torch

from benchmarks.paired_timing import compare, keep
from benchmarks.step import APART, CASES, LAST, SHARED
from paragan.core.process_environment import temporary_variables

_SWITCH, _WAIT_S = "THP_MEM_ALLOC_ENABLE", 600.0


class Stepper:
    """A separate process that makes a step on request. seconds: of its processor, so far."""

    def __init__(self, net: str, plain: bool, environment: dict[str, str]) -> None:
        context = get_context("spawn")
        self._line, theirs = context.Pipe()
        self.seconds = 0.0
        self._process = context.Process(target=_serve, args=(theirs, net, plain), daemon=True)
        with temporary_variables(environment):
            self._process.start()

    def step(self) -> None:
        self._line.send(True)
        if not self._line.poll(_WAIT_S):
            raise TimeoutError(f"a step took longer than {_WAIT_S:g} s")
        self.seconds += self._line.recv()

    def close(self) -> None:
        self._line.send(False)
        self._process.join(_WAIT_S)


def _serve(line: Connection, net: str, plain: bool) -> None:
    torch.set_num_threads(1)
    case = CASES[net]
    step = case.plain() if plain else case.ours(*LAST, SHARED if net == "pix2pix" else APART)
    while line.recv():
        before = time.process_time()
        step()
        line.send(time.process_time() - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=list(CASES), required=True)
    parser.add_argument("--pairs", type=int, default=15)
    arguments = parser.parse_args()
    results = {}
    for label, plain in (("ours", False), ("plain loop", True)):
        both = small, large = [Stepper(arguments.net, plain, on) for on in ({}, {_SWITCH: "1"})]
        pages = compare(small.step, large.step, arguments.pairs, clock=lambda both=both: sum(s.seconds for s in both))
        results[f"{label}: small pages / large pages"] = pages
        small.close(), large.close()
    keep(f"step-pages-{arguments.net}", results, "one D and one G update, channels last (plain loop: not)")


if __name__ == "__main__":
    main()
