"""Absolute step times on an accelerator: SNGAN 32 px in every precision and layout, images/s and peak memory.

python -m benchmarks.gpu [steps] [batch]
"""

from __future__ import annotations

import json
import sys
import time
from datetime import date
from itertools import count

import torch

from benchmarks.pairs import RESULTS
from paragan.core import rng
from paragan.core.types import Batch, Rows, Side
from paragan.game.gan import GAN, Loss
from paragan.game.network import Calling
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.layers.init import initialise
from paragan.losses import hinge
from paragan.models import sngan
from paragan.parallel import none
from paragan.schemes import shared_fakes, synchronous

SHAPE, CLASSES = (3, 32, 32), 10
VARIANTS = {
    "fp32": (Calling(), synchronous),
    "bf16": (Calling(torch.bfloat16), synchronous),
    "bf16 channels-last": (Calling(torch.bfloat16, channels_last=True), synchronous),
    "bf16 channels-last shared fakes": (Calling(torch.bfloat16, channels_last=True), shared_fakes),
    "fp16 channels-last shared fakes": (Calling(torch.float16, channels_last=True, scaled=True), shared_fakes),
}


def measure(calling: Calling, scheme, steps: int, batch: int, device: torch.device) -> dict[str, float]:
    """Images/s over `steps` after a warm-up, and the peak memory in MiB."""
    policy, seats = Policy(torch.optim.Adam, 2e-4, {"betas": (0.0, 0.9)}), []
    for side, kind in ((Side.G, sngan.Generator), (Side.D, sngan.Discriminator)):
        net = kind(sngan.Options(), SHAPE, CLASSES)
        initialise(net, 0, side.value)
        net.to(device)
        if calling.channels_last:
            net.to(memory_format=torch.channels_last)
        seats.append(Player(side, net, none.Strategy(), policy, calling))
    gan = GAN(*seats, Loss(hinge.d_loss, hinge.g_loss), Prior(0, sngan.Options().latent, CLASSES, device))
    rows = Rows(0, 0, batch, batch)
    real = (rng.uniform(1, "x", rows, SHAPE).to(device) * 2 - 1, rng.integers(1, "y", rows, CLASSES).to(device))
    batches = (Batch(Rows(step, 0, batch, batch), *real) for step in count())
    for _ in range(10):
        scheme.step(gan, batches)
    torch.accelerator.synchronize()
    torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    for _ in range(steps):
        scheme.step(gan, batches)
    torch.accelerator.synchronize()
    seconds = time.perf_counter() - start
    return {"images_per_s": steps * batch / seconds, "peak_mib": torch.cuda.max_memory_allocated() / 2**20}


def main(steps: int = 200, batch: int = 64) -> None:
    if not torch.cuda.is_available():
        print("not run: no accelerator")
        return
    device = torch.device("cuda")
    results = {name: measure(*variant, steps, batch, device) for name, variant in VARIANTS.items()}
    for name, values in results.items():
        print(f"{name}: {values['images_per_s']:.0f} images/s, {values['peak_mib']:.0f} MiB")
    machine = torch.cuda.get_device_name()
    record = {
        "date": date.today().isoformat(),
        "machine": machine,
        "torch": torch.__version__,
        "batch": batch,
        "results": results,
    }
    path = RESULTS / f"{record['date']}-gpu-sngan32.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
