"""Networks of a process that take turns at being whoever is looked at: genomes are many, networks few."""

from __future__ import annotations

import torch
from torch import nn

from paragan.coevolution.genome import Genome
from paragan.game.network import CalledNetwork, Calling
from paragan.layers.modes import remember_modes

_PLAIN = Calling()


class EvalNetwork:
    """net: of the players' kind, made anew; it is never trained. calling: as the players call theirs."""

    def __init__(self, net: nn.Module, calling: Calling = _PLAIN) -> None:
        remember_modes(net)
        self.net = net.eval().requires_grad_(False)
        self._called = CalledNetwork(net, calling)
        self._held = dict(net.state_dict())
        self._shown: tuple[Genome, bool] | None = None

    @torch.no_grad()
    def show(self, genome: Genome, average: bool = False) -> CalledNetwork:
        """The network as this genome has it, until the next is shown. average: as its average has it."""
        if self._shown != (genome, average):
            for name, value in genome.network_state(average).items():
                self._held[name].copy_(value)
            self._shown = (genome, average)
        return self._called
