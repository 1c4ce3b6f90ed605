"""Construction of the terms of a game: adversarial loss, penalties, augmentation of D's inputs."""

from __future__ import annotations

from torch import nn

from paragan.build.data import Data
from paragan.config import RunConfig
from paragan.core import registry
from paragan.core.balancer import Balancer
from paragan.core.errors import ConfigError
from paragan.core.from_memory import FROM_MEMORY
from paragan.core.loss import Loss
from paragan.core.network_factory import Model
from paragan.core.option_types import Choice
from paragan.core.protocols import Augment, Penalty
from paragan.core.tensor_game import TensorGame
from paragan.core.types import Side


def adversarial(chosen: Choice, model: Model | None = None) -> Loss:
    """Return the loss of a file of `losses/`, or that of a program."""
    if isinstance(model, TensorGame) and chosen.name == FROM_MEMORY:
        assert model.loss is not None
        return model.loss
    declared = registry.load_chosen("losses", chosen).loss
    made: Loss = declared if isinstance(declared, Loss) else declared(chosen.options)
    return made


def penalties(
    config: RunConfig,
    found: Data,
    model: Model | None = None,
) -> dict[Side, tuple[Penalty, ...]]:
    """Return the penalties of each player.

    Raises `ConfigError` for one that does not support images, or of a player that does not exist,
    and for a further player without any.
    """
    made = [_penalty(chosen, model) for chosen in config.penalties]
    wrong = next((penalty.name for penalty in made if found.is_image and not penalty.for_images), None)
    if wrong is not None:
        raise ConfigError(f"penalty {wrong} does not support images; leave it out")
    by_side = {Side(name): tuple(one for one in made if one.side is Side(name)) for name in config.player_options}
    stray = next((penalty for penalty in made if penalty.side not in by_side), None)
    if stray is not None:
        name = stray.side.value
        raise ConfigError(f"penalty {stray.name} is a term of {name}, which is no player; add players.{name}")
    idle = next((name for name in config.players if not by_side[Side(name)]), None)
    if idle is not None:
        problem = f"players.{idle} has no loss"
        raise ConfigError(f"{problem}; add a term with the side {idle!r} to penalties, or leave the player out")
    return by_side


def _penalty(chosen: Choice, model: Model | None) -> Penalty:
    if isinstance(model, TensorGame) and chosen.name == FROM_MEMORY:
        return model.terms[chosen.options.term, Side(chosen.options.side)]
    made: Penalty = registry.load_chosen("penalties", chosen).Penalty(chosen.options)
    return made


def augmentation(config: RunConfig, d: nn.Module) -> Augment | None:
    """Return the augmentation of D's inputs; None: none. d: the discriminator.

    Raises `ConfigError` for one that appends channels that D does not read.
    """
    if config.augment is None:
        return None
    name = config.augment.name
    made: Augment = registry.load_module("augment", name).Augment(config.augment.options)
    appended = getattr(made, "extra_channels", 0)
    if appended and not any(getattr(module, "extra_channels", 0) == appended for module in d.modules()):
        raise ConfigError(
            f"augment {name} appends {appended} channel to D's images, which D of {config.model.name} "
            f"does not read; use model flow_unet, leave augment out, or set extra_channels = {appended} "
            "in a D of your own that reads it"
        )
    return made


def balancing(config: RunConfig) -> Balancer | None:
    """Return the balancer of G's terms; None: none."""
    if config.balancer is None:
        return None
    made: Balancer = registry.load_module("balancers", config.balancer.name).Balancer(config.balancer.options)
    return made
