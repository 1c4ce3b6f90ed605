"""Validation of custom networks, losses and settings before a run writes anything."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from paragan.core.capabilities import ALL, Capability, Holder, check_capabilities
from paragan.core.dist import World
from paragan.core.errors import ConfigError
from paragan.core.loss import Loss
from paragan.core.outputs import DiscriminatorOutput, GeneratorOutput, mean_per_sample
from paragan.core.outside_code import reraise_as_config_error
from paragan.core.protocols import Network, Penalty
from paragan.core.types import Rows, Side
from paragan.game.needs import term_needs
from paragan.game.options import PlayerOptions
from paragan.game.player import Player
from paragan.game.prior import Prior

ROWS = 4


def validate_networks(
    g: Network, d: Network, loss: Loss, prior: Prior, shape: tuple[int, int, int], conditioned: bool = False
) -> None:
    """Run both networks and the loss once, forward and backward, in training mode.

    g, d: networks built for this. shape: of one image, (C, H, W). conditioned: both also take such
    an image. Raises `ConfigError` if one is wrong.
    """
    with torch.random.fork_rng(devices=[]):
        z, y = prior.draw("trial", Rows(0, 0, ROWS, ROWS))
        condition = None
        if conditioned:
            condition = torch.zeros(ROWS, *shape, device=prior.device, dtype=prior.dtype)
        _refuse_label_mismatch(g, (z, y, condition), "Generator", prior.num_classes)
        with reraise_as_config_error(f"model: Generator.forward(z, y{', condition' * conditioned})"):
            images = GeneratorOutput.of(g(z, y, condition)).images
        _expect_shape(images, (ROWS, *shape), "model: Generator", "images of the data's shape")
        refuse_non_finite(images, "Generator", "images")
        _refuse_label_mismatch(d, (images, y, condition), "Discriminator", prior.num_classes)
        logits_B = [_logits(d, x, y, condition) for x in (torch.zeros_like(images), images)]
        with reraise_as_config_error("loss: d_loss(real, fake)"):
            of_d = loss.d(*logits_B)
        _expect_shape(of_d, (ROWS,), "loss: d_loss", "one value per image, not a mean")
        with reraise_as_config_error("loss: g_loss(fake, real)"):
            of_real = logits_B[0] if loss.g_needs_real else None
            of_g = loss.g(logits_B[1], of_real)
        _expect_shape(of_g, (ROWS,), "loss: g_loss", "one value per image, not a mean")
        for name, values in (("d_loss", of_d), ("g_loss", of_g)):
            if not values.requires_grad:
                raise ConfigError(f"loss: {name} returned values without a gradient: is there a detach or a no_grad?")
            with reraise_as_config_error(f"model: the backward pass from {name}"):
                values.sum().backward(retain_graph=True)


def _refuse_label_mismatch(net: Network, inputs: tuple[Any, ...], who: str, num_classes: int) -> None:
    """Raise `ConfigError` if `forward` takes no labels although it gets some, or the reverse."""
    forward = net.module.forward
    _, y, condition = inputs
    first = "z" if who == "Generator" else "x"
    if condition is not None or _takes(forward, 1 if y is None else 2):
        return
    code = getattr(forward, "__code__", None)
    place = "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
    if y is None and _takes(forward, 2):
        raise ConfigError(
            f"model: {who}.forward({first}, y) needs labels, but this run has none{place}; give y "
            f"a default: forward(self, {first}, y=None)"
        )
    if y is not None and _takes(forward, 1):
        raise ConfigError(
            f"model: {who}.forward({first}) takes no labels, but the data has {num_classes} "
            f"classes{place}; accept them: forward(self, {first}, y), or set self.num_classes = 0 "
            "in the Generator, or pass data.labels=false"
        )


def _takes(forward: Any, count: int) -> bool:
    """Return whether `forward` takes `count` positional arguments; True if unknown."""
    try:
        inspect.signature(forward).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _logits(d: Network, x: Tensor, y: Tensor | None, condition: Tensor | None) -> Tensor:
    arguments = "x, y" if condition is None else "x, y, condition"
    with reraise_as_config_error(f"model: Discriminator.forward({arguments})"):
        output = d(x, y, condition)
        converted = DiscriminatorOutput.of(output)
    for name, member in converted.by_name.items():
        _refuse_invalid_logits(f"Discriminator {name}" if name else "Discriminator", member.logits_B, len(x))
    return mean_per_sample(converted.logits_B)


def _refuse_invalid_logits(who: str, logits: Any, count: int) -> None:
    if not isinstance(logits, Tensor) or logits.dim() == 0 or len(logits) != count:
        problem = f"model: {who} returned {describe_value(logits)} for {count} images"
        raise ConfigError(f"{problem}; return one logit for each")
    refuse_non_finite(logits, who, "logits")
    if not logits.requires_grad:
        raise ConfigError(f"model: {who} returned logits without a gradient: is there a detach or a no_grad?")


def refuse_non_finite(values: Tensor, who: str, what: str) -> None:
    """Raise `ConfigError` if a value is infinite or NaN. who: the network; what: it returned."""
    if not values.isfinite().all():
        raise ConfigError(f"model: {who} returned {what} that are not finite; check its initial weights and divisions")


def _expect_shape(found: Any, shape: tuple[int, ...], who: str, what: str) -> None:
    if not isinstance(found, Tensor) or tuple(found.shape) != shape:
        raise ConfigError(f"{who} returned {describe_value(found)}; return {what}: {shape}")


def describe_value(value: Any) -> str:
    """Return the shape of a tensor, or the type of another value, for messages."""
    if isinstance(value, Tensor):
        return f"a tensor of {tuple(value.shape)}"
    return f"a {type(value).__name__}"


def refuse_mismatched_data(takes_condition: bool, model: str, has_pairs: bool, data: str) -> None:
    """Raise `ConfigError` if only one of generator and data is made for pairs."""
    if takes_condition != has_pairs:
        what = "images from images" if takes_condition else "images from latents"
        fix = "data.name=paired" if takes_condition else "data of single images, or model.name=pix2pix"
        raise ConfigError(f"model {model} makes {what}, which does not fit data {data}; use {fix}")


def check_player(
    options: PlayerOptions,
    player: Player,
    penalties: tuple[Penalty, ...],
    loss_needs: frozenset[Capability] = frozenset(),
    loss: str = "",
) -> None:
    """Raise `ConfigError` if the player's terms and settings need what strategy or network does not have."""
    key = player.side.value
    terms = tuple(term_needs(penalties, loss_needs, f"loss {loss}"))
    check_capabilities(player.strategy.holder, (*terms, *options.needs(key)))
    if options.micro_batches > 1:
        name = f"{key}.micro_batches={options.micro_batches}"
        check_capabilities(Holder(name, ALL - {Capability.COUPLED}, f"set {key}.micro_batches=1"), terms)
    if player.plain_network.mixes:
        norms = "choose another norm (dcgan: model.d_norm=spectral)"
        check_capabilities(Holder(f"batch norm of {key}", ALL - {Capability.SEPARATE_SAMPLES}, norms), terms)


def refuse_invalid_counts(side: Side, options: PlayerOptions, batch: int, world: World) -> None:
    """Raise `ConfigError` for too many ranks or micro-batches, or updates of G other than one."""
    if batch < world.size:
        problem = f"train.batch={batch} is less than one image for each of {world.size} ranks"
        raise ConfigError(f"{problem}; pass a larger batch")
    if options.micro_batches > batch // world.size:
        on = "" if world.size == 1 else f" on {world.size} ranks"
        raise ConfigError(
            f"{side.value}.micro_batches={options.micro_batches} is too many for a batch of "
            f"{batch}{on}: each needs an image; pass a smaller number"
        )
    if side is Side.G and options.update_probability < 1:
        raise ConfigError(
            "g.update_probability is not supported: every step has an update of G; set d.update_probability"
        )
    if side.is_further and options.update_probability < 1:
        raise ConfigError(f"players.{side.value}.update_probability is not supported: it is for D; leave it out")
    if side is Side.G and options.updates_per_step > 1:
        raise ConfigError(
            f"g.updates_per_step={options.updates_per_step} is not supported: a step has one "
            "update of G; set d.updates_per_step, or use a smaller g learning rate"
        )
