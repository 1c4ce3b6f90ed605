"""Construction of the terms of a game: adversarial loss, penalties, augmentation of D's inputs."""

import inspect

from torch import nn

from paragan.build.data import Data, sample_name
from paragan.config import RunConfig
from paragan.core import registry
from paragan.core.balancer import Balancer
from paragan.core.errors import ConfigError
from paragan.core.from_memory import FROM_MEMORY
from paragan.core.network_factory import Model
from paragan.core.option_types import Choice
from paragan.core.outside_code import reraise_as_config_error
from paragan.core.protocols import Augment, Loss, Penalty
from paragan.core.tensor_game import TensorGame
from paragan.core.types import Side


def adversarial(choice: Choice, model: Model | None = None) -> Loss:
    """Return the loss of a file of `losses/`, or that of a program.

    Raises `ConfigError` for a file whose `loss` is neither a `Loss` nor a function of its options that returns one.
    """
    if isinstance(model, TensorGame) and choice.name == FROM_MEMORY:
        assert model.loss is not None
        return model.loss
    declared = registry.load_chosen("losses", choice).loss
    if inspect.isfunction(declared) and len(inspect.signature(declared).parameters) == 1:
        with reraise_as_config_error(f"loss {choice.name}"):
            declared = declared(choice.options)
    if not isinstance(declared, Loss):
        kind = type(declared).__name__
        raise ConfigError(
            f"loss {choice.name}: loss must be pg.Loss(d_loss, g_loss), not a {kind}; d_loss(real, fake) and "
            "g_loss(fake, real) take logits and return one value per sample"
        )
    return declared


def penalties(config: RunConfig, data: Data, model: Model | None = None) -> dict[Side, tuple[Penalty, ...]]:
    """Return the penalties of each player.

    Raises `ConfigError` for one that does not support the samples, and for players that do not exist or have none.
    """
    shape = data.train.tensors[sample_name(config, model) or "image"].shape
    by_side: dict[Side, tuple[Penalty, ...]] = {Side(name): () for name in config.player_options}
    for penalty in [_penalty(choice, model) for choice in config.penalties]:
        side = penalty.side
        if data.is_image and penalty.needs_named_tensors:
            raise ConfigError(
                f"penalty {penalty.name} does not support model {config.model.name}, whose networks receive images and "
                "labels; leave it out"
            )
        if penalty.needs_images and len(shape) != 3:
            raise ConfigError(f"penalty {penalty.name} needs images (C, H, W), not samples of {shape}; leave it out")
        if side not in by_side:
            raise ConfigError(
                f"penalty {penalty.name} is a term of {side.value}, which is not a player; add players.{side.value}"
            )
        by_side[side] = (*by_side[side], penalty)
    for name in config.players:
        if not by_side[Side(name)]:
            raise ConfigError(
                f"players.{name} has no loss; add a term with the side {name!r} to penalties, or leave the player out"
            )
    return by_side


def _penalty(choice: Choice, model: Model | None) -> Penalty:
    if isinstance(model, TensorGame) and choice.name == FROM_MEMORY:
        return model.terms[choice.options.term, Side(choice.options.side)]
    penalty: Penalty = registry.load_chosen("penalties", choice).Penalty(choice.options)
    if missing := [f"Penalty.{name}" for name in ("name", "side") if not hasattr(penalty, name)]:
        raise ConfigError(f"penalty {choice.name!r} does not define {' and '.join(missing)}; add what is missing there")
    return penalty


def augmentation(config: RunConfig, d: nn.Module) -> Augment | None:
    """Return the augmentation of D's inputs, if any; `ConfigError` if D does not read the channels that it appends."""
    if config.augment is None:
        return None
    name = config.augment.name
    augment: Augment = registry.load_module("augment", name).Augment(config.augment.options)
    appended = getattr(augment, "extra_channels", 0)
    if appended and not any(getattr(module, "extra_channels", 0) == appended for module in d.modules()):
        raise ConfigError(
            f"augment {name} appends {appended} channel to D's images, which D of {config.model.name} "
            f"does not read; use model flow_unet, leave augment out, or set extra_channels = {appended} "
            "in a D of your own that reads it"
        )
    return augment


def balancing(config: RunConfig) -> Balancer | None:
    """Return the balancer of G's terms; None: none."""
    if config.balancer is None:
        return None
    return registry.load_module("balancers", config.balancer.name).Balancer(config.balancer.options)
