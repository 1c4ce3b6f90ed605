"""Network that is reused to evaluate many genomes."""

from __future__ import annotations

import torch
from torch import nn

from paragan.coevolution.genome import Genome
from paragan.game.network import CalledNetwork, Calling
from paragan.layers.modes import remember_modes

_DEFAULT_CALLING = Calling()


class EvalNetwork:
    """Network into which genomes are loaded for evaluation.

    net: newly made, with the players' architecture; it is never trained. calling: how the players
    call their networks.
    """

    def __init__(self, net: nn.Module, calling: Calling = _DEFAULT_CALLING) -> None:
        remember_modes(net)
        self.net = net.eval().requires_grad_(False)
        self._called = CalledNetwork(net, calling)
        self._state = dict(net.state_dict())
        self._loaded: tuple[Genome, bool] | None = None

    @torch.no_grad()
    def load(self, genome: Genome, average: bool = False) -> CalledNetwork:
        """Load a genome and return the network, valid until the next call. average: use the EMA."""
        if self._loaded != (genome, average):
            for name, value in genome.network_state(average).items():
                self._state[name].copy_(value)
            self._loaded = (genome, average)
        return self._called
