"""Absolute step times on an accelerator: SNGAN 32 px in every precision and layout, images/s and peak memory.

Then, as ratios of step times in turn: one rank under each strategy, and an optimiser in the host's memory
(for its ZeRO row at batch 1 Colossal-AI's poster has 6.7). Grids: `benchmarks.gpu_cells`.

python -m benchmarks.gpu [steps] [batch]
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import replace
from functools import partial
from itertools import count

import torch

from benchmarks import gpu_zoo
from benchmarks.record import write
from paragan.core import registry, rng
from paragan.core.dist import ALONE, World
from paragan.core.network_factory import NetworkFactory
from paragan.core.protocols import Loss
from paragan.core.types import Batch, Rows, Side
from paragan.distributed.launch.join import destroy_groups, join
from paragan.game.gan import GAN
from paragan.game.network import Calling
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.hardware import executors
from paragan.layers.init import initialise
from paragan.losses import hinge
from paragan.models import sngan
from paragan.parallel import MemoryOptions
from paragan.schemes import shared_fakes, synchronous

SHAPE, CLASSES = (3, 32, 32), 10
DEVICE = torch.device("cuda")
GRAPHS = executors.call_compiler("graphs", DEVICE)
LAST = Calling(torch.bfloat16, channels_last=True)
VARIANTS = {
    "fp32": (Calling(), synchronous),
    "bf16": (Calling(torch.bfloat16), synchronous),
    "bf16 channels-last": (LAST, synchronous),
    "bf16 channels-last shared fakes": (LAST, shared_fakes.Scheme()),
    "fp16 channels-last shared fakes": (Calling(torch.float16, channels_last=True, scaled=True), shared_fakes.Scheme()),
    "fp32, CUDA graphs": (Calling(compiler=GRAPHS), synchronous),
    "bf16 channels-last, CUDA graphs": (replace(LAST, compiler=GRAPHS), synchronous),
    "bf16 channels-last shared fakes, CUDA graphs": (replace(LAST, compiler=GRAPHS), shared_fakes.Scheme()),
}


RATIOS = {
    "ddp": ("ddp", MemoryOptions()),
    "zero1": ("zero1", MemoryOptions()),
    "zero3": ("zero3", MemoryOptions()),
    "ddp, bf16 reduction": ("ddp", MemoryOptions(bf16_reduce=True)),
    "none, offload": ("none", MemoryOptions(offload=True)),
    "zero1, offload": ("zero1", MemoryOptions(offload=True)),
    "pure": ("none", MemoryOptions(weight_dtype=torch.bfloat16)),
}


def stepper(
    calling: Calling,
    scheme,
    batch: int,
    world: World,
    strategy: str = "none",
    memory: MemoryOptions = RATIOS["ddp"][1],
):
    """A call that makes one step."""
    policy = Policy(kind=torch.optim.Adam, lr=2e-4, arguments={"betas": (0.0, 0.9)})

    def construct(kind):
        net = kind(sngan.Options(), SHAPE, CLASSES)
        return net.to(memory_format=torch.channels_last) if calling.channels_last else net

    def seat(side: Side, kind) -> Player:
        make = NetworkFactory(partial(construct, kind), partial(initialise, seed=0, stream=side.value), world.device)
        placed = registry.load_module("parallel", strategy).Strategy(None, memory)
        return Player(side=side, net=placed.prepare(make, world), strategy=placed, policy=policy, calling=calling)

    g, d = [seat(side, kind) for side, kind in ((Side.G, sngan.Generator), (Side.D, sngan.Discriminator))]
    prior = Prior(seed=0, latent=sngan.Options().latent, num_classes=CLASSES, device=world.device)
    gan = GAN(g=g, d=d, loss=Loss(hinge.d_loss, hinge.g_loss), prior=prior)
    rows = Rows(step=0, first=0, count=batch, total=batch)
    x = (rng.uniform(1, "x", rows, SHAPE) * 2 - 1).to(world.device)
    y = rng.integers(1, "y", rows, CLASSES).to(world.device)
    batches = (Batch(Rows(step=step, first=0, count=batch, total=batch), {"image": x, "label": y}) for step in count())
    return lambda: scheme.step(gan, batches)


def seconds(step, steps: int) -> float:
    """Of one step, the device's own work included."""
    torch.accelerator.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    torch.accelerator.synchronize()
    return (time.perf_counter() - start) / steps


def measure(step, steps: int, batch: int) -> dict[str, float]:
    """Images/s over `steps` after a warm-up, and the peak memory in MiB."""
    seconds(step, 10)
    torch.cuda.reset_peak_memory_stats()
    images_per_s = batch / seconds(step, steps)
    return {"images_per_s": images_per_s, "peak_mib": torch.cuda.max_memory_allocated() / 2**20}


def ratio(strategy: str, memory: MemoryOptions, steps: int, batch: int, world: World) -> float:
    """Step time over that of the plain one, median of rounds in turn."""
    calling = Calling(memory.weight_dtype)
    one, plain = (
        stepper(calling, synchronous, batch, world, *how) for how in ((strategy, memory), ("none", MemoryOptions()))
    )
    for step in (one, plain):
        seconds(step, 10)
    return statistics.median(seconds(one, steps // 10) / seconds(plain, steps // 10) for _ in range(10))


def ratios(steps: int, batch: int, world: World) -> dict[str, float | str]:
    """One that fails has the reason in its place."""
    found: dict[str, float | str] = {}
    for name, how in RATIOS.items():
        for size in (batch, 1):
            try:
                found[f"{name}, batch {size}"] = ratio(*how, steps, size, world)
            except Exception as error:
                found[f"{name}, batch {size}"] = f"not run: {type(error).__name__}: {str(error)[:200]}"
    return found


def main(steps: int = 100, batch: int = 64) -> None:
    if not torch.cuda.is_available():
        print("not run: no accelerator")
        return
    alone = replace(ALONE, device=DEVICE)
    plain = gpu_zoo.plain(gpu_zoo.Case("sngan", 32, CLASSES, batch, hinge), DEVICE, batch)
    steps_of = {"plain loop, fp32": lambda: plain}
    steps_of |= {name: partial(stepper, *variant, batch, alone) for name, variant in VARIANTS.items()}
    results = {}
    for name, make in steps_of.items():
        results[name] = values = measure(make(), steps, batch)
        print(f"{name}: {values['images_per_s']:.0f} images/s, {values['peak_mib']:.0f} MiB", flush=True)
    world = join(None, DEVICE, 60.0, alone_group=True)
    over_plain = ratios(steps, batch, world)
    destroy_groups(world)
    print("\n".join(f"{name}: {value}" for name, value in over_plain.items()))
    found = {"batch": batch, "results": results, "step time over the plain one": over_plain}
    write("gpu-sngan32", found, on=torch.cuda.get_device_name())


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
