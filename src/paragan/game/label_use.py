"""Checks whether networks take labels, and whether a generator uses them."""

import inspect
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from paragan.core.errors import ConfigError
from paragan.core.outputs import GeneratorOutput
from paragan.core.printable import counted
from paragan.core.rng import seed_torch
from paragan.core.types import Rows, Side
from paragan.game.network import CalledNetwork
from paragan.game.prior import Prior

_NUM_LATENTS = 4
_NUM_LABELS = 8  # the first ones, and as many over the whole range: few calls for any number of classes
_NOISE = (0.0, 0.01, 0.1, 1.0)  # standard deviations: small noise may vanish in an image, and large saturate its tanh


@torch.no_grad()
def ignores_labels(generator: nn.Module, prior: Prior) -> bool:
    """Return whether equal latents give bit-equal images for all labels, for any weights.

    Class embeddings may start equal or at zero, so noise is added to the weights and buffers.
    Changes the generator and moves it to the CPU, where equal inputs give bit-equal outputs.
    """
    generator = generator.cpu().eval()
    prior = replace(prior, device=torch.device("cpu"))
    with torch.random.fork_rng(devices=[]):
        for deviation in _NOISE:
            _add_noise(generator, deviation)
            if not gives_equal_images(generator, prior):
                return False
    return True


@torch.no_grad()
def gives_equal_images(generator: nn.Module, prior: Prior) -> bool:
    """Return whether a generator, in eval mode, gives bit-equal images for neighbouring and distant labels."""
    called = CalledNetwork(module=generator)
    z_BZ, _ = prior.draw("label_use", Rows(step=0, first=0, count=_NUM_LATENTS, total=_NUM_LATENTS))
    with torch.random.fork_rng(devices=[]):  # noise inside the generator leaves torch's global generator unchanged
        last = prior.num_classes - 1
        neighbouring = range(prior.num_classes)[:_NUM_LABELS]
        distant = [last * number // _NUM_LABELS for number in range(_NUM_LABELS + 1)]
        labels = sorted({*neighbouring, *distant})
        images = []
        for label in labels:
            seed_torch(0)  # equal noise for every label
            y_B = torch.full((len(z_BZ),), label, device=z_BZ.device)
            images.append(GeneratorOutput.of(called(z_BZ, y_B)).images)
    return len(images) > 1 and all(torch.equal(images[0], other) for other in images[1:])


def _add_noise(net: nn.Module, deviation: float) -> None:
    """Add noise to weights and positive noise to buffers, so that variances stay positive."""
    seed_torch(0)
    for weight in net.parameters():
        weight.add_(torch.randn_like(weight), alpha=deviation)
    for buffer in net.buffers():
        if buffer.is_floating_point():
            buffer.add_(torch.randn_like(buffer).abs(), alpha=deviation)


def check_label_arguments(side: Side, net: nn.Module, num_classes: int) -> None:
    """Raise `ConfigError` if `forward` takes no labels although it gets some, or the reverse.

    A `forward` of another number of arguments passes: the first call names what is wrong with it.
    """
    forward = net.forward
    who, first = ("Generator", "z") if side is Side.G else ("Discriminator", "x")
    if _takes(forward, 2 if num_classes else 1):
        return
    code = getattr(forward, "__code__", None)
    place = "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
    if not num_classes and _takes(forward, 2):
        raise ConfigError(
            f"model: {who}.forward({first}, y) needs labels, but this run has none{place}; give y "
            f"a default: forward(self, {first}, y=None)"
        )
    if num_classes and _takes(forward, 1):
        raise ConfigError(
            f"model: {who}.forward({first}) takes no labels, but the data has {counted(num_classes, 'class')}{place}; "
            # the Generator decides for both networks whether the run has labels
            f"accept them: forward(self, {first}, y), or set self.num_classes = 0 in the Generator, or pass "
            "data.labels=false"
        )


def _takes(forward: Any, count: int) -> bool:
    """Return whether `forward` takes `count` positional arguments; True if unknown."""
    try:
        inspect.signature(forward).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # it has no signature
        pass
    return True
