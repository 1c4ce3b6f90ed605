"""Standing statistics of a generator's batch norms (Brock et al. 2019, "BigGAN", appendix C.1)."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.layers.batch_norm import BatchNorm
from paragan.layers.update_once import begin_update


@torch.no_grad()
def with_standing_statistics(net: nn.Module, batches: Iterable[tuple[Tensor, Tensor | None]]) -> nn.Module:
    """Return a copy whose running statistics are the means of those of these batches of latents and labels.

    Running statistics lag behind the weights, and behind their average most of all. Other layers stay in evaluation
    mode. Raises `ConfigError` for a generator without batch norm.
    """
    net = copy.deepcopy(net).eval()
    norms = [module for module in net.modules() if isinstance(module, BatchNorm | nn.modules.batchnorm._BatchNorm)]
    if not norms:
        raise ConfigError("--standing-stats: this generator has no batch norm; leave it out")
    momenta = [norm.momentum for norm in norms]
    for number, (z_BZ, y_B) in enumerate(batches, start=1):
        for norm in norms:
            norm.train()
            norm.momentum = 1 / number  # the mean of all batches so far
        begin_update(net)
        net(z_BZ) if y_B is None else net(z_BZ, y_B)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return net.eval()
