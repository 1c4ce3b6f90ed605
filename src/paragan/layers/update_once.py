"""Layer state that advances once per update of its player.

Examples are spectral norm's vectors and running statistics. `begin_update` marks the layers; the
first forward advances the state and clears the mark. Further micro-batches, a second call of D,
recomputation, penalties and opponents' forwards leave the state unchanged. Without any `begin_update`,
every forward in training mode advances it, as in PyTorch's layers.
"""

from torch import nn

from paragan.layers.modes import frozen_modules


class UpdateOnce(nn.Module):
    """Base of layers whose state advances once per update.

    `update_due` is control state on the host, not part of the model; None until the first `begin_update`.
    """

    update_due: bool | None = None
    mixes_samples: bool = False  # in training, as batch norm does

    def take_update(self) -> bool:
        """Return whether the state is to advance now, and clear the mark."""
        is_due = self.training and self.update_due is not False
        if self.update_due:
            self.update_due = False
        return is_due


def begin_update(net: nn.Module) -> None:
    """Mark the layers of `net`: their next training-mode forward advances their state, once."""
    for layer in update_once_layers(net):
        layer.update_due = True


def hold_updates(net: nn.Module) -> nn.Module:
    """Have the layers of `net` advance only after `begin_update` from now on; return the net."""
    for layer in update_once_layers(net):
        layer.update_due = False
    return net


def release_updates(net: nn.Module) -> nn.Module:
    """Have the layers of `net` advance at every training-mode forward again, as PyTorch's do; return the net."""
    for layer in update_once_layers(net):
        layer.update_due = None
    return net


def update_once_layers(net: nn.Module) -> list[UpdateOnce]:
    """Return the layers of `net` that `begin_update` marks."""
    return [module for module in net.modules() if isinstance(module, UpdateOnce)]


def mixes_samples(net: nn.Module) -> bool:
    """Return whether a training-mode forward couples the samples of a batch, as batch norm does."""
    return bool(mixing_layers(net))


def mixing_layers(net: nn.Module) -> set[nn.Module]:
    """Return the layers of `net` that couple samples, except frozen ones (evaluation mode)."""
    norms = nn.modules.batchnorm._BatchNorm
    mixing: set[nn.Module] = {
        m for m in net.modules() if (isinstance(m, UpdateOnce) and m.mixes_samples) or isinstance(m, norms)
    }
    return mixing - frozen_modules(net) if mixing else mixing
