"""A module for a player from memory: the user's module, or an object that holds networks."""

import copy
import inspect
from typing import Any

from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.game.plain_layers import check_plain_layers
from paragan.layers.modes import set_train_mode


class _ObjectModule(nn.Module):
    """A module for an object with `model_fn`, whose networks and weights are registered here."""

    def __init__(self, player: Any) -> None:
        super().__init__()
        self._player = player
        for name, value in vars(player).items():
            if isinstance(value, nn.Parameter):
                self.register_parameter(name, value)
            elif isinstance(value, nn.Module):
                self.add_module(name, value)
        self._check_trained()

    def model_fn(self, *inputs: Tensor | None) -> Any:
        # strategies may have replaced them
        vars(self._player).update(self._modules | self._parameters)
        return self._player.model_fn(*inputs)

    def _check_trained(self) -> None:
        """Raise `ConfigError` for weights in a list, another object or the class."""
        trained = {id(weight) for weight in self.parameters()}
        for name, value in inspect.getmembers_static(self._player):
            may_have_weights = name in vars(self._player) or isinstance(value, nn.Module | nn.Parameter)
            if may_have_weights and _weights_in(value) - trained:
                raise ConfigError(
                    f"Estimator: {class_name(self)}.{name} has weights that would not be trained; assign "
                    "networks to attributes of the object, several as a torch.nn.ModuleList or ModuleDict"
                )


def as_module(player: Any) -> nn.Module:
    """Return the player as a module on the CPU, in training mode. Raises `ConfigError` for unusable weights."""
    net = player if isinstance(player, nn.Module) else _ObjectModule(player)
    check_plain_layers(f"Estimator: {class_name(net)}", net)
    if not any(weight.requires_grad for weight in net.parameters()):
        is_frozen = any(True for _ in net.parameters())
        remedy = "all are frozen; unfreeze some" if is_frozen else "assign networks to its attributes: self.net = …"
        raise ConfigError(f"Estimator: {class_name(net)} has no weights to train; {remedy}")
    return set_train_mode(net.cpu())


def class_name(net: nn.Module) -> str:
    """Return the name of the user's class."""
    return type(net._player if isinstance(net, _ObjectModule) else net).__name__


def _weights_in(value: Any) -> set[int]:
    """Return the ids of all trainable weights that a deep copy of the value would copy."""
    reached: dict[int, Any] = {}
    copy.deepcopy(value, reached)
    return {id_ for id_, value in reached.items() if isinstance(value, nn.Parameter) and value.requires_grad}
