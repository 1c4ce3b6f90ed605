"""Nothing in a step reads from the device between log points: the counter, and schedules. Games: tests/numerics."""

from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from paragan.core.types import Side
from paragan.game.options import ScheduleOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.parallel import none
from paragan.schemes import synchronous
from tests.laws.small_gan import batches, game, network

WAITING = {
    torch.ops.aten._local_scalar_dense.default,  # .item(), float(), bool(), tolist() of one value
    torch.ops.aten.equal.default,
    torch.ops.aten.is_nonzero.default,
    torch.ops.aten.nonzero.default,
}


class HostReads(TorchDispatchMode):
    """Counts operations that would make the host wait for an accelerator."""

    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function in WAITING:
            self.seen[str(function)] += 1
        return function(*args, **(kwargs or {}))


def test_schedules_stay_on_the_device():
    policy = Policy(lr=1e-3, schedule=ScheduleOptions(name="cosine", warmup=2, end=5))
    gan = game(*(Player(side=side, net=network(side), strategy=none.Strategy(), policy=policy) for side in Side))
    stream = batches()
    synchronous.step(gan, stream)
    with HostReads() as reads:
        synchronous.step(gan, stream)
    assert not reads.seen


def test_the_counter_counts():
    with HostReads() as reads:
        assert torch.ones(()).item() == 1
    assert sum(reads.seen.values()) == 1
