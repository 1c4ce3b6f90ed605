"""Trial of a game on named tensors: both networks, the loss and every term on some samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.core.outputs import DiscriminatorOutput, GeneratorOutput
from paragan.core.outside_code import reraise_as_config_error
from paragan.core.source import Source
from paragan.core.types import Batch, Rows, Side, TurnInputs
from paragan.game.gan import GAN
from paragan.game.network import CalledNetwork
from paragan.game.turn_validation import run_each_penalty
from paragan.game.validation import ROWS, describe_value, refuse_non_finite
from paragan.loading.loader import normalise_images


def validate_on(game: GAN, makers: Mapping[Side, Callable[[], nn.Module]], source: Source) -> None:
    """Run both networks, the loss and each penalty once on the first samples of the data.

    makers: build networks for this; `game` does not change. Raises `ConfigError`, a line that names
    the cause.
    """
    nets = {side: make() for side, make in makers.items()}
    real = _first_samples(source, game)
    with torch.random.fork_rng(devices=[]):
        feed = game.prior.feed("trial", real)
        fake = _generate(CalledNetwork(nets[Side.G]), feed)
        d = CalledNetwork(nets[Side.D])
        with torch.no_grad():
            judged = [_judge(d, (x, *conditions), feed) for x, *conditions in _inputs_of_d(feed, fake)]
        for of_real, of_fake in zip(*(one.by_name.values() for one in judged), strict=True):
            _try_loss(game, of_real.logits_B, of_fake.logits_B)
        run_each_penalty(game, nets, real)


def _first_samples(source: Source, game: GAN) -> Batch:
    count = min(ROWS, len(source) or ROWS)
    rows = np.arange(count)
    moved = {name: value.to(game.prior.device) for name, value in source.fetch(rows, rows).items()}
    tensors = normalise_images(moved, source, game.prior.dtype)
    return Batch(Rows(0, 0, count, count), tensors)


def _generate(g: CalledNetwork, feed: TurnInputs) -> Tensor:
    names = ", ".join(feed.generator_arguments or ())
    with reraise_as_config_error(f"generator: forward({names})"):
        made = GeneratorOutput.of(g(*feed.fake_inputs)).images
    expected = tuple(feed.real_sample.shape)
    if not isinstance(made, Tensor) or tuple(made.shape) != expected:
        problem = f"generator: forward({names}) returned {describe_value(made)}"
        raise ConfigError(f"{problem}; return one of the shape of {feed.arguments[0]!r} in a batch: {expected}")
    refuse_non_finite(made, "generator", "values")
    if not made.requires_grad:
        raise ConfigError("generator: its output has no gradient: is there a detach or a no_grad?")
    return made.detach()


def _inputs_of_d(feed: TurnInputs, fake: Tensor) -> list[tuple[Tensor | None, ...]]:
    return [feed.real_inputs, (fake, *feed.fake_conditions)]


def _judge(d: CalledNetwork, inputs: tuple[Tensor | None, ...], feed: TurnInputs) -> DiscriminatorOutput:
    names = ", ".join(feed.arguments)
    with reraise_as_config_error(f"discriminator: forward({names})"):
        output = DiscriminatorOutput.of(d(*inputs))
    for name, one in output.by_name.items():
        logits = one.logits_B
        if not isinstance(logits, Tensor) or logits.dim() == 0 or len(logits) != feed.rows.count:
            problem = f"discriminator {name}".strip() + f": forward({names}) returned {describe_value(logits)}"
            raise ConfigError(
                f"{problem} for {feed.rows.count} samples; keep the batch axis: a logit, or several, for each"
            )
        refuse_non_finite(logits, "discriminator", "logits")
    return output


def _try_loss(game: GAN, real: Tensor, fake: Tensor) -> None:
    whole = {"d": (real, fake), "g": (fake, real)}
    for side, function in (("d", game.loss.d), ("g", game.loss.g)):
        logits = whole[side] if side == "d" or game.loss.g_needs_real else (fake, None)
        with reraise_as_config_error(f"loss: {side}_loss"):
            values = function(*logits, *(logits if game.loss.compares else ()))
        if not isinstance(values, Tensor) or values.dim() == 0 or len(values) != len(real):
            problem = f"loss: {side}_loss returned {describe_value(values)} for {len(real)} samples"
            raise ConfigError(f"{problem}; return one value per sample, not a mean")
