"""One look at networks and losses from outside, before anything is written: what does not fit is told in a line."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.outside import told
from paragan.core.seams import Network
from paragan.core.types import Made, Rows, Verdict
from paragan.game.gan import Loss
from paragan.game.prior import Prior

_ROWS = 4


def refuse_unfit(
    g: Network, d: Network, loss: Loss, prior: Prior, shape: tuple[int, int, int], conditioned: bool = False
) -> None:
    """Call both once in training mode, forth and back, with networks made for it. shape: of one image, (C, H, W).

    conditioned: both are also given such an image.
    """
    with torch.random.fork_rng(devices=[]):
        z, y = prior.draw("trial", Rows(0, 0, _ROWS, _ROWS))
        condition = torch.zeros(_ROWS, *shape, device=prior.device, dtype=prior.dtype) if conditioned else None
        with told(f"model: Generator.forward(z, y{', condition' * conditioned})"):
            images = Made.of(g(z, y, condition)).images
        _expect(images, (_ROWS, *shape), "model: Generator", "images of the data's shape")
        _refuse_odd_numbers(images, "Generator", "images")
        logits_B = [_logits(d, x, y, condition) for x in (torch.zeros_like(images), images)]
        with told("loss: d_loss(real, fake)"):
            of_d = loss.d(*logits_B)
        _expect(of_d, (_ROWS,), "loss: d_loss", "one value per image, not a mean")
        with told("loss: g_loss(fake, real)"):
            of_real = logits_B[0] if loss.g_needs_real else None
            of_g = loss.g(logits_B[1], of_real)
        _expect(of_g, (_ROWS,), "loss: g_loss", "one value per image, not a mean")
        for name, values in (("d_loss", of_d), ("g_loss", of_g)):
            if not values.requires_grad:
                raise ConfigError(f"loss: {name} returned values without a gradient: is there a detach or a no_grad?")
            with told(f"model: the way back from {name}"):
                values.sum().backward(retain_graph=True)


def _logits(d: Network, x: Tensor, y: Tensor | None, condition: Tensor | None) -> Tensor:
    with told(f"model: Discriminator.forward(x, y{', condition' * (condition is not None)})"):
        output = d(x, y, condition)
    logits = Verdict.of(output).logits_B
    if not isinstance(logits, Tensor) or logits.dim() == 0 or len(logits) != len(x):
        raise ConfigError(f"model: Discriminator returned {_brief(logits)} for {len(x)} images, expected a logit each")
    _refuse_odd_numbers(logits, "Discriminator", "logits")
    if not logits.requires_grad:
        raise ConfigError("model: Discriminator returned logits without a gradient: is there a detach or a no_grad?")
    return logits.flatten(1).mean(1) if logits.dim() > 1 else logits


def _refuse_odd_numbers(values: Tensor, who: str, what: str) -> None:
    if not values.isfinite().all():
        raise ConfigError(f"model: {who} returned {what} that are not finite, expected numbers")


def _expect(found: Any, shape: tuple[int, ...], who: str, what: str) -> None:
    if not isinstance(found, Tensor) or tuple(found.shape) != shape:
        raise ConfigError(f"{who} returned {_brief(found)}, expected {what}: {shape}")


def _brief(value: Any) -> str:
    return f"a tensor of {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def refuse_other_data(takes_condition: bool, model: str, has_pairs: bool, data: str) -> None:
    """`ConfigError` where a generator makes images from images and the data has no pairs, or the other way round."""
    if takes_condition != has_pairs:
        what = "images from images" if takes_condition else "images from latents"
        expected = "data of pairs: data.name=paired" if takes_condition else "single images, or model.name=pix2pix"
        raise ConfigError(f"model: {model} makes {what}, found data {data}; expected {expected}")
