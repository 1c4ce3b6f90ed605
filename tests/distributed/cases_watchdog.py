"""Watchdogs of two ranks, and the time that a rank waits for the other."""

import json
import os
import socket
import time
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paragan.core import registry
from paragan.core.dist import World
from paragan.core.phases import Phase, PhaseClock, phase, set_thread_clock
from paragan.distributed.launch.hang import HangExchange, RankState, describe_hang
from paragan.parallel.base.backward_pass import backward


def hang_of_rank_1(world: World) -> list:
    """Rank 0 waits in a collective, rank 1 in its turn of D: the line, and the errors of both."""
    store = dist.PrefixStore("hang of rank 1", world.store)
    store.set(f"here/{world.rank}", json.dumps([socket.gethostname(), os.getpid()]))
    exchange = HangExchange(replace(world, store=store))
    if world.rank:
        while not exchange.is_requested():
            time.sleep(0.01)
        exchange.answer(RankState(rank=1, step=6, phase="d_turn", seconds=31.0))
        error = exchange.wait_for_reason()
        return [type(error).__name__, error.exit_code, str(error)]
    exchange.answer(RankState(rank=0, step=7, phase="communication", seconds=33.0), requests=True)
    states = exchange.collect()
    error = exchange.publish(describe_hang(states, 30.0))
    return [type(error).__name__, error.exit_code, str(error)]


def wait_in_backward(world: World) -> list[float]:
    """Rank 1 begins its backward pass late: its delay, and this rank's seconds of the turn and of communication."""
    net = DistributedDataParallel(nn.Linear(64, 64), process_group=world.group)
    clock = PhaseClock()
    set_thread_clock(clock)
    began = time.monotonic()
    with phase(Phase.D_TURN):
        loss = net(torch.ones(4, 64)).sum()
        time.sleep(0.5 * world.rank)
        delay = time.monotonic() - began
        backward([loss], [None], world.size)
    set_thread_clock(None)
    return [delay, clock.seconds[Phase.D_TURN], clock.seconds[Phase.COMMUNICATION]]


def wait_for_shards(world: World, name: str) -> list[float]:
    """Rank 1 begins its turn late: its delay, and this rank's seconds of the turn and of communication."""
    strategy = registry.load_module("parallel", name).Strategy()
    net = strategy.prepare(lambda: nn.Linear(64, 64), world)
    net(torch.ones(4, 64))  # connects the ranks
    clock = PhaseClock()
    set_thread_clock(clock)
    with phase(Phase.D_TURN):
        time.sleep(0.5 * world.rank)
        delay = clock.stretch()[1]
        loss = net(torch.ones(4, 64)).sum()
        backward([loss], [None], world.size)
    set_thread_clock(None)
    return [delay, clock.seconds[Phase.D_TURN], clock.seconds[Phase.COMMUNICATION]]
