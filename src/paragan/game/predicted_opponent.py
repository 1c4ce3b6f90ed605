"""An opponent ahead of its last known weights: the prediction step of Yadav et al. 2018, section 3.

In an asynchronous game a snapshot is a step late. Its prediction adds the last change of the
weights once more, which approximates the weights that the player has by now. Buffers, such as
spectral norm's vectors and running statistics, are those of the snapshot.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paragan.core.network_factory import copy_networks
from paragan.core.protocols import Network
from paragan.game.network import CalledNetwork
from paragan.game.snapshot import Snapshot


class PredictedOpponent:
    """An `Opponent` with the weights that a snapshot is expected to have one step later.

    factor: times the change per step that is added, above 0. step: versions of a step. Needs the
    memory of one more network.
    """

    def __init__(self, snapshot: Snapshot, factor: float, step: int = 1) -> None:
        self.snapshot = snapshot
        self._factor = factor
        self._step = step
        self._net = copy_networks(snapshot.net)
        self._network = CalledNetwork(module=self._net, calling=snapshot.plain_network.calling)

    @property
    def version(self) -> int:
        """Version of the snapshot."""
        return self.snapshot.version

    def network(self) -> Network:
        """Return the frozen network of the prediction."""
        return self._network

    def forget(self) -> None:
        """Predict no change until the next state: for equal results with a run that resumes here."""
        self._net.load_state_dict(self.snapshot.net.state_dict())

    @torch.no_grad()
    def follow(self, message: Tensor, version: int, is_difference: bool = False) -> None:
        """Load a message into the snapshot (`Snapshot.follow`), and predict from its change."""
        before = self.snapshot.version
        self.forget()  # the weights before the change
        self.snapshot.follow(message, version, is_difference)
        steps = (self.snapshot.version - before) / self._step
        for name, now in self.snapshot.net.named_buffers():
            self._net.get_buffer(name).copy_(now)
        if steps > 0:
            for predicted, now in zip(self._net.parameters(), self.snapshot.net.parameters(), strict=True):
                predicted.lerp_(now, 1 + self._factor / steps)
        else:  # the exact state of the same version
            self.forget()
