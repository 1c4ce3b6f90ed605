"""Generator and discriminator from memory: objects with `model_fn`, or plain modules."""

from typing import Any

import torch
from torch import nn

from paragan.api.networks import Networks, whole_number
from paragan.api.object_module import as_module, class_name
from paragan.core import rng
from paragan.core.dist import ALONE, World
from paragan.core.errors import ConfigError
from paragan.core.network_factory import copy_networks
from paragan.core.outside_code import reraise_as_config_error
from paragan.game.shared_memory import check_separate

_SIGNATURES = {"g": "model_fn(latent_var, y)", "d": "model_fn(x, y)"}


class Estimator:
    """A generator and a discriminator from memory, trained together (the ParaGAN poster, figure 5).

    g: an object with `model_fn(latent_var, y)`, which returns images in [-1, 1]. d: one with `model_fn(x, y)`, which
    returns (output, out_logit): losses read out_logit, one for each image or a map of them; output is ignored.
    latent_var is (B, latent); y is (B,) of classes, or None. The objects hold networks in attributes, or are
    `torch.nn.Module`s themselves; a module without `model_fn` is called, D may then return the logits alone, and a
    `forward` of one argument receives no y. The length of latent_var and the number of classes (0: y is None) are
    `g.latent` and `g.num_classes`; if g has none, those of `model.latent` and `model.conditional` in the config, and
    the data.

    Training starts from their weights at the first step (on several ranks: those of rank 0) and
    works on copies: g and d are unchanged. Raises `ConfigError` for invalid objects.
    """

    def __init__(self, g: Any, d: Any) -> None:
        self.g = _checked("g", g)
        self.d = _checked("d", d)

    def networks(self, world: World = ALONE) -> Networks:
        """Return copies of both networks, on the CPU. Collective: every rank must call this."""
        with reraise_as_config_error("Estimator: copying g and d"):
            g, d = copy_networks((self.g, self.d), *_modules_of(self.g), *_modules_of(self.d))
            g, d = as_module(g), as_module(d)
        check_separate({"g": g, "d": d}, "Estimator: ")
        follow_rank_0(g, world)
        follow_rank_0(d, world)
        return Networks(
            g=g,
            d=d,
            latent=whole_number(self.g, "latent"),
            num_classes=whole_number(self.g, "num_classes"),
            origin=(origin(self.g), origin(self.d)),
        )


def _checked(name: str, player: Any) -> Any:
    """Return the player. Raises `ConfigError` for a class, or an object that is no network."""
    if isinstance(player, type):
        cls = player.__name__
        raise ConfigError(f"Estimator: {name} is the class {cls}; pass an object, {cls}()")
    if not isinstance(player, nn.Module) and not callable(getattr(player, "model_fn", None)):
        raise ConfigError(
            f"Estimator: {name}: {type(player).__name__} is not a torch.nn.Module and has no {_SIGNATURES[name]}; "
            "define it"
        )
    return player


def origin(player: Any) -> str:
    """Return the dotted path of an object's class."""
    return f"{type(player).__module__}.{type(player).__qualname__}"


def follow_rank_0(net: nn.Module, world: World) -> None:
    """Copy rank 0's weights: every rank drew different ones."""
    tensors = {name: value.detach() for name, value in (*net.named_parameters(), *net.named_buffers())}
    shapes = {name: [str(value.dtype), *value.shape] for name, value in tensors.items()}
    if any(remote != shapes for remote in world.gather(shapes)):
        raise ConfigError(f"{class_name(net)}: the networks differ between ranks; create the same on all")
    for value in tensors.values():  # as bytes: gloo has not every number format
        received = value.clone(memory_format=torch.contiguous_format)
        world.broadcast_from_main([received.view(-1).view(torch.uint8)])
        value.copy_(received)


def instance(network: Any, seed: int) -> Any:
    """Construct a class, with weights that depend on the seed alone; return objects unchanged."""
    if not isinstance(network, type):
        return network
    with torch.random.fork_rng(devices=[]), reraise_as_config_error(f"{network.__name__}()"):
        rng.seed_torch(rng.key(seed, "construct", network.__name__))
        return network()


def sampling_networks(generator: Any) -> Networks:
    """Return a generator from memory, or its class, as networks without a discriminator."""
    generator = _checked("g", instance(generator, seed=0))
    with reraise_as_config_error("generator: copying it"):
        net = as_module(copy_networks(generator, *_modules_of(generator)))
    return Networks(
        g=net,
        d=nn.Identity(),
        latent=whole_number(generator, "latent"),
        num_classes=whole_number(generator, "num_classes"),
    )


def _modules_of(player: Any) -> list[nn.Module]:
    """Return the networks of a module, or of an object that holds some as attributes."""
    if isinstance(player, nn.Module):
        return [player]
    return [value for value in vars(player).values() if isinstance(value, nn.Module)]
