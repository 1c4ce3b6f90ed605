"""On an accelerator: compiled and recorded networks train as those that run as written; `auto` looks at all of them."""

from dataclasses import replace

import pytest
import torch

from paragan.core.types import Side
from paragan.game.network import Calling
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.hardware import executors as compiling
from paragan.parallel import none
from paragan.penalties import r1
from paragan.schemes import shared_fakes, synchronous
from tests.laws.small_gan import batches, distance, game, network, play

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,  # kernels are written
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
]
STEPS = 6  # recording begins at the third call


def moved(stream):
    for batch in stream:
        yield replace(batch, tensors={name: tensor.cuda() for name, tensor in batch.tensors.items()})


def on_gpu(executor, interval):
    calling = Calling(compiler=compiling.call_compiler(executor, torch.device("cuda")))
    policy = Policy(kind=torch.optim.Adam, lr=1e-2, arguments={"betas": (0.0, 0.9)})
    gan = game(
        *(
            Player(side=side, net=network(side).cuda(), strategy=none.Strategy(), policy=policy, calling=calling)
            for side in Side
        )
    )
    gan.prior = replace(gan.prior, device=torch.device("cuda"))
    gan.d_penalties = (r1.Penalty(r1.Options(weight=0.3, interval=interval)),)
    return gan


@pytest.mark.parametrize("interval", [1, 2])
@pytest.mark.parametrize("scheme", [synchronous, shared_fakes.Scheme()])
@pytest.mark.parametrize("executor", ["compile", "graphs"])
def test_it_trains_as_what_runs_as_written_with_r1(executor, scheme, interval):
    there, here = on_gpu(executor, interval), on_gpu("eager", interval)
    for gan in (there, here):
        play(gan, scheme, moved(batches()), STEPS)
    for a, b in ((there.g, here.g), (there.d, here.d)):
        assert distance(dict(a.net.state_dict()), dict(b.net.state_dict())) <= 1e-9
