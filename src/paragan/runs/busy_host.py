"""Processes that keep the other cores of this host busy while the steps of a worker are timed.

Workers of a host share its memory, caches and clock rate. What that costs depends on what they
compute, so the neighbours run steps of the same networks, without a network between them.

python -m paragan.runs.busy_host
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch

from paragan import build
from paragan.config import RunConfig, dump, parse_recipe
from paragan.config.sections import ANY
from paragan.core.answering_processes import source_environment
from paragan.core.errors import RankError
from paragan.core.process_environment import num_cores
from paragan.runs.measured_times import noise_batches
from paragan.runs.shape_only_data import shape_only_data

_MOST_WORKERS = 16  # their processes need memory; more slow each other down as much
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 10.0


def workers_of_host(threads: int) -> int:
    """Return how many workers of so many threads keep this host busy."""
    return max(1, min(_MOST_WORKERS, num_cores() // threads))


def measure_with_neighbours(
    config: RunConfig,
    found: build.Data,
    number: int,
    sizes: Sequence[int],
    step_s: Callable[[int], float],
    say: Callable[[str], None],
) -> list[float]:
    """Return the seconds of a step by batch size, while so many processes run steps of that size.

    step_s: times steps of a batch size.
    """
    say(f"measuring steps next to {number} other processes")
    seconds = []
    with busy_neighbours(config, found, number) as neighbours:
        for size in sizes:
            neighbours.run(size)
            seconds.append(step_s(size))
    return seconds


class Neighbours:
    """Processes that run steps of a config. Each needs an answer within a time-out."""

    def __init__(self, processes: list[subprocess.Popen[str]]) -> None:
        self._processes = processes

    def run(self, batch: int) -> None:
        """Let each run steps of this batch from now on; returns once all do. Raises `RankError`."""
        for process in self._processes:
            _write(process, str(batch))
        for process in self._processes:
            _await_line(process)


@contextmanager
def busy_neighbours(config: RunConfig, found: build.Data, number: int) -> Iterator[Neighbours]:
    """Start so many processes; they end with the block. config: of one eager process."""
    about = {
        "config": dump(config),
        "shape": found.train.shape,
        "classes": found.num_classes,
        "has_pairs": found.has_pairs,
        "is_image": found.is_image,
        "threads": torch.get_num_threads(),
    }
    command = [sys.executable, "-P", "-m", "paragan.runs.busy_host"]
    pipe = subprocess.PIPE
    environment = source_environment()
    processes = []
    for _ in range(number):
        process = subprocess.Popen(command, env=environment, text=True, stdin=pipe, stdout=pipe, stderr=pipe)
        processes.append(process)
    try:
        for process in processes:
            _write(process, json.dumps(about))
        yield Neighbours(processes)
    finally:
        for process in processes:
            _stop(process)


def _write(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
    except BrokenPipeError:
        raise _failure(process) from None


def _await_line(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], _START_TIMEOUT_S)
    if not ready or not process.stdout.readline():
        raise _failure(process)


def _failure(process: subprocess.Popen[str]) -> RankError:
    process.kill()
    _, text = process.communicate()
    reason = text.strip().splitlines()[-1:] or [f"no step within {_START_TIMEOUT_S:g} s"]
    return RankError(f"a process that keeps the host busy failed: {reason[0]}")


def _stop(process: subprocess.Popen[str]) -> None:
    with suppress(subprocess.TimeoutExpired, OSError, ValueError):
        process.communicate(timeout=_STOP_TIMEOUT_S)  # closes its input, at which it ends
    process.kill()
    process.wait()


def main() -> None:
    """Run steps of the batch that was read last, until the input ends."""
    about: dict[str, Any] = json.loads(sys.stdin.readline())
    torch.set_num_threads(about["threads"])
    config = parse_recipe(about["config"], "the profiled config", ANY)
    found = shape_only_data(tuple(about["shape"]), about["classes"], about["has_pairs"], about["is_image"])
    device = torch.device("cpu")
    game = build.gan(config, found, device)
    scheme = build.scheme(config)
    while line := sys.stdin.readline():
        batches = noise_batches(config, found, device, int(line))
        scheme.step(game, batches)
        print("runs", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            scheme.step(game, batches)


if __name__ == "__main__":
    main()
