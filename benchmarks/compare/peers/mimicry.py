"""mimicry (`torch-mimicry`): the train steps of its SNGAN for CIFAR-10, unconditional."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from benchmarks.compare.works import Prepared, case

SOURCE = None
WORKS = ("sngan-unlabelled",)
STAND_INS = ("torchvision", "torch._six", "tensorflow", "sklearn", "skimage", "requests", "six", "tensorboard")


def prepare(work: str, path: Path | None) -> Prepared:
    import torch
    from torch_mimicry.nets.sngan.sngan_32 import SNGANDiscriminator32, SNGANGenerator32
    from torch_mimicry.training.metric_log import MetricLog

    g, d = SNGANGenerator32(), SNGANDiscriminator32()
    adam_g, adam_d = (torch.optim.Adam(net.parameters(), 2e-4, betas=(0.0, 0.9)) for net in (g, d))
    of = case(work)
    batch = (of.real().image, torch.zeros(of.batch, dtype=torch.long))
    log, device = MetricLog(), torch.device("cpu")

    def step() -> None:
        d.train_step(real_batch=batch, netG=g, optD=adam_d, log_data=log, device=device)
        g.train_step(real_batch=batch, netD=d, optG=adam_g, log_data=log, device=device)

    return Prepared(step, (g, d), f"torch-mimicry {version('torch-mimicry')}")
