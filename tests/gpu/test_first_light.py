"""On an accelerator: the same numbers as on the CPU, no host sync in a step, every precision, stop and go on."""

import pytest
import torch

from paragan import build
from paragan.config import read_recipe
from paragan.core.types import Side
from paragan.parallel import none
from paragan.schemes import shared_fakes, synchronous
from tests.laws.small_gan import batches, distance, game, play, player
from tests.tiny_run import train_and_read

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
]
SMALL = [
    "data.size=16",
    "model.width=8",
    "train.batch=32",
    "train.kimg=0.64",
    "evaluation.features=null",
    "every.log_steps=100",
]


def moved(stream, device):
    for batch in stream:
        yield type(batch)(batch.rows, {name: tensor.to(device) for name, tensor in batch.tensors.items()})


def on(device):
    """The small game of the laws with everything on `device`."""
    from dataclasses import replace

    from tests.laws.small_gan import network

    seats = [player(side, none.Strategy(), make=lambda side=side: network(side).to(device)) for side in Side]
    gan = game(*seats)
    gan.prior = replace(gan.prior, device=torch.device(device))
    return gan


@pytest.mark.parametrize("scheme", [synchronous, shared_fakes.Scheme()])
def test_the_accelerator_computes_what_the_cpu_computes(scheme):
    there, here = on("cuda"), on("cpu")
    play(there, scheme, moved(batches(), "cuda"))
    play(here, scheme, batches())
    for a, b in ((there.g, here.g), (there.d, here.d)):
        assert distance({k: v.cpu() for k, v in a.net.state_dict().items()}, dict(b.net.state_dict())) <= 1e-9


def test_a_step_never_waits_for_the_device():
    gan, stream = on("cuda"), moved(batches(), "cuda")
    ready = [next(stream) for _ in range(6)]
    synchronous.step(gan, iter(ready[:1]))  # optimiser states and kernels exist after the first
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in ready[1:]:
            synchronous.step(gan, iter([batch]))
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_every_precision_trains(tmp_path, precision):
    schedule = ["g.schedule={name: cosine, warmup: 2, end: 20}", "d.schedule={name: linear, end: 40}"]
    settings = [*SMALL, *schedule, f"g.precision={precision}", f"d.precision={precision}"]
    trainer = build.trainer(read_recipe("digits", settings), tmp_path, print, lambda: False)
    last = train_and_read(trainer)[0][-1]
    assert all(torch.isfinite(torch.tensor(value)) for value in last.values()), last
    assert int(trainer.gan.g.updates) >= 15  # an fp16 scale may have to come down first


def test_stop_and_go_on(tmp_path):
    first = build.trainer(read_recipe("digits", [*SMALL, "train.kimg=0.32"]), tmp_path / "a", print, lambda: False)
    list(first.run())
    second = build.trainer(read_recipe("digits", SMALL), tmp_path / "a", print, lambda: False)
    assert second.resume()
    list(second.run())
    assert second.clock.images == 640
    assert next(second.gan.g.net.parameters()).is_cuda
