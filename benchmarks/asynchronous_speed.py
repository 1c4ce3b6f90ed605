"""What it is worth that G and D do not wait for each other: one rank each, whose computing is emulated by sleeping.

An update of D takes 80 ms and one of G 100 ms, plus the little that networks of a few thousand weights cost. Lockstep
is the same scheme on the same ranks with S = 0. Seconds by the clock, since what is measured is waiting.

Then the cost model at several latencies L of every message. G's update t waits for D's step t - S, D's step j for
images that G makes once its update j - 1 is done: around that circle go S + 1 steps, two messages and one update of
either, so that a step takes

    max(t_G, t_D, (t_G + t_D + 2 L) / (S + 1)).

Aims: S = 1 at least 1.7 times as fast as lock-step; a step within 15 % of the model.

    python -m benchmarks.asynchronous_speed [pairs]
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict

import torch

from benchmarks.paired_timing import Ratio, compare
from benchmarks.record import write
from paragan.core.dist import World
from paragan.core.types import Side
from paragan.distributed.launch.join import destroy_groups, join
from paragan.distributed.launch.rank_env import from_environment
from paragan.distributed.links.gloo_link import GlooSender
from paragan.schemes.base import rank_links
from tests.distributed.cases_asynchronous import begun

SLEEP_S = {Side.D: 0.080, Side.G: 0.100}
STEPS, LATENCIES_S, STALENESS = 30, (0.0, 0.05, 0.1, 0.2), (0, 1, 2, 6)
SPEED_UP, WITHIN = 1.7, 0.15


class LateSender(GlooSender):
    """Every message leaves `latency_s` after it was queued; several may be in transit."""

    latency_s = 0.0

    def send(self, message) -> None:
        self.__dict__.setdefault("_given", deque()).append(time.monotonic())
        super().send(message)

    def _head(self, version: int, size: int, note: int = 0) -> None:
        if size > 0:
            time.sleep(max(0.0, self._given.popleft() + self.latency_s - time.monotonic()))
        super()._head(version, size, note)


def played(world: World, staleness: int) -> tuple[Callable[[], None], Callable[[], float], Callable[[], None]]:
    """Calls: one makes STEPS steps, one returns the mean seconds of this rank's update, one ends the links."""
    gan, scheme, stream = begun(world, 1, staleness=staleness, reuse=True)
    (side,) = scheme._roles.sides
    player, spent = getattr(gan, side.value), [0.0, 0]

    def emulated(call, seconds):
        def slow(*given, **named):
            began = time.monotonic()
            time.sleep(seconds)
            found = call(*given, **named)
            spent[0] += time.monotonic() - began
            return found

        return slow

    player.update = emulated(player.update, SLEEP_S[side])
    player.generate_fakes = emulated(player.generate_fakes, 0.0)

    def steps() -> None:
        for _ in range(STEPS):
            scheme.step(gan, stream)
        scheme.quiesce()
        spent[1] += STEPS

    return steps, lambda: spent[0] / spent[1], scheme.close


def step_seconds(world: World, staleness: int, latency_s: float) -> dict[str, float]:
    """Measured and modelled, of one step."""
    LateSender.latency_s = latency_s
    steps, update_s, close = played(world, staleness)
    for _ in range(5):  # the first steps find everything waiting
        world.barrier()
        began = time.monotonic()
        steps()
        measured = (time.monotonic() - began) / STEPS
    close()
    t_g, t_d = world.gather(update_s())
    model = max(t_g, t_d, (t_g + t_d + 2 * latency_s) / (staleness + 1))
    settings = {"staleness": staleness, "latency_s": latency_s, "t_g": t_g, "t_d": t_d}
    return settings | {"measured_s": max(world.gather(measured)), "model_s": model}


def on_a_rank(pairs: int) -> None:
    torch.set_num_threads(1)
    rank_links.GlooSender = LateSender
    world = join(from_environment(), torch.device("cpu"), 120.0)
    (in_step, _, end_one), (separate, _, end_other) = played(world, 0), played(world, 1)
    faster: Ratio = compare(in_step, separate, pairs, warm_up=1, clock=time.monotonic)
    end_one(), end_other()
    table = [step_seconds(world, staleness, latency) for staleness in STALENESS for latency in LATENCIES_S]
    if world.is_main:
        tell(faster, table)
    destroy_groups(world)


def tell(faster: Ratio, table: list[dict[str, float]]) -> None:
    print(f"lock-step / S = 1: {faster.median:.3f} [{faster.low:.3f}, {faster.high:.3f}], aim at least {SPEED_UP}")
    print("S  latency ms  measured ms  model ms  ratio")
    for row in table:
        ratio = row["measured_s"] / row["model_s"]
        print(
            f"{row['staleness']}  {1000 * row['latency_s']:10.0f}  {1000 * row['measured_s']:11.1f}  "
            f"{1000 * row['model_s']:8.1f}  {ratio:.3f}{'' if abs(ratio - 1) <= WITHIN else '  MISSED'}"
        )
    write(
        "asynchronous-speed",
        {"sleep_ms": {"d": 80, "g": 100}, "steps": STEPS, "lock-step/S=1": asdict(faster), "model": table},
    )


if __name__ == "__main__":
    if from_environment() is None:
        ranks = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
        command = [sys.executable, *ranks, "-m", "benchmarks.asynchronous_speed", *sys.argv[1:]]
        sys.exit(subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=3600).returncode)
    on_a_rank(int(sys.argv[1]) if sys.argv[1:] else 15)
