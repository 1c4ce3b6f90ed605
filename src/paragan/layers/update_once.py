"""State that a layer advances once per update of its player: spectral norm's vectors, batch norm's running statistics.

`begin_update` marks the layers; the first forward advances the state and clears the mark. Further
micro-batches, the second call of a discriminator, recomputation, penalties, and every forward that
an opponent makes leave it alone: a turn changes only its own player.
"""

from __future__ import annotations

from torch import nn

from paragan.layers.modes import frozen_modules


class UpdateOnce(nn.Module):
    """Base of layers with such state.

    `update_due` is control state on the host, not part of the model.
    """

    update_due: bool = False
    mixes: bool = False  # whether the layer mixes the samples of a batch in training

    def take_update(self) -> bool:
        """True once per update."""
        was = self.update_due and self.training
        self.update_due = False
        return was


def begin_update(net: nn.Module) -> None:
    """Let the next training-mode forward of `net` advance its state, once."""
    for layer in update_once_layers(net):
        layer.update_due = True


def update_once_layers(net: nn.Module) -> list[UpdateOnce]:
    """The layers of `net` that `begin_update` marks."""
    return [module for module in net.modules() if isinstance(module, UpdateOnce)]


def mixes_samples(net: nn.Module) -> bool:
    """Whether a training-mode forward of `net` couples the samples of its batch (batch norm of ours or torch's)."""
    return bool(mixing_layers(net))


def mixing_layers(net: nn.Module) -> set[nn.Module]:
    """The layers of `net` that couple samples; those of a frozen part do not, for they stay in evaluation mode."""
    norms = nn.modules.batchnorm._BatchNorm
    found: set[nn.Module] = {
        m for m in net.modules() if (isinstance(m, UpdateOnce) and m.mixes) or isinstance(m, norms)
    }
    return found - frozen_modules(net) if found else found
