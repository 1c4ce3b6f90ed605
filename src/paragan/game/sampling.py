"""Sampling of images from a generator, and standing statistics of its batch norms."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.network_factory import copy_networks
from paragan.core.outputs import GeneratorOutput
from paragan.core.types import Rows
from paragan.game.network import CalledNetwork, Calling
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.layers.batch_norm import BatchNorm
from paragan.layers.modes import in_mode
from paragan.layers.random import preserved_state
from paragan.layers.update_once import begin_update

Mode = Literal["eval", "train-stats"]
_MAX_PIXELS = 250 * 128 * 128  # of one call in evaluation mode, for its memory: the default batch of 128x128 images
_pixels: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()  # of an image, by generator

MODE_DESCRIPTIONS = {
    "eval": ("averaged generator where there is one, evaluation mode: running statistics, no dropout, full precision"),
    "train-stats": (
        "averaged generator where there is one, as in training: batch statistics (of one image "
        "where it is made from an image), dropout on, full precision"
    ),
}


def sampling_network(player: Player, place: str = "data") -> CalledNetwork:
    """Return the averaged generator if the player has one, else the live one; in full precision. place: of inputs."""
    if player.ema is not None:
        return CalledNetwork(module=player.ema.net, place=place)
    # `precision: pure` has bf16 weights.
    low = any(weight.dtype == torch.bfloat16 for weight in player.net.parameters())
    calling = Calling(torch.bfloat16) if low else Calling()
    return CalledNetwork(module=player.net, calling=calling, place=place)


def generate_images(
    generator: CalledNetwork,
    z_BZ: Tensor,
    y_B: Tensor | None,
    batch: int = 250,
    condition: Tensor | None = None,
    mode: Mode = "eval",
    *,
    shift_BLW: Tensor | None = None,
    seed: int = 0,
    first: int = 0,
) -> Tensor:
    """Generate x_BCHW in [-1, 1], `batch` at a time, without changing the generator or its modes.

    In `eval` fewer at a time if images are larger than 128x128. mode: `eval` (running statistics) or `train-stats`
    (batch statistics, dropout on: Isola et al. 2017, section 3.4). condition: input images; in train-stats then one
    at a time, so that batch norm normalizes one image. shift_BLW: of styles, for a generator that has them. Any draws
    follow (seed, number of the batch's first row), where the first row is number `first`; global generators do not
    change. Raises `ConfigError` for another mode.
    """
    _check_mode(mode)
    inputs = (z_BZ, y_B, condition if shift_BLW is None else shift_BLW)  # no generator takes both
    with in_mode(generator.module, training=mode != "eval"), preserved_state(generator.module):
        if mode == "eval":
            batch = min(batch, _rows_at_once(generator, inputs))
        elif condition is not None:
            batch = 1
        return torch.cat(_generate_batches(generator, inputs, batch, seed, first))


@torch.no_grad()
def generate_tensors(
    generator: CalledNetwork, inputs: tuple[Tensor | None, ...], mode: Mode = "eval", seed: int = 0, first: int = 0
) -> GeneratorOutput:
    """Generate from named inputs, without changing the generator or its modes; samples are not clamped.

    mode, seed, first: as of `generate_images`.
    """
    _check_mode(mode)
    module: nn.Module = generator.module
    with in_mode(module, training=mode != "eval"), preserved_state(module):
        rng.seed_globally(rng.key(seed, "sample/noise", first))
        return GeneratorOutput.of(generator(*inputs))


def _check_mode(mode: str) -> None:
    if mode not in MODE_DESCRIPTIONS:
        raise ConfigError(f"mode must be one of {', '.join(MODE_DESCRIPTIONS)}, not {mode!r}")


@torch.no_grad()
def _rows_at_once(generator: CalledNetwork, inputs: tuple[Tensor | None, ...]) -> int:
    """Return how many images to generate at a time, by the size of the first one."""
    if generator.module not in _pixels:
        first = GeneratorOutput.of(generator(*(None if tensor is None else tensor[:1] for tensor in inputs)))
        _pixels[generator.module] = first.images.shape[-2:].numel()
    return max(1, _MAX_PIXELS // _pixels[generator.module])


@torch.no_grad()
def _generate_batches(
    generator: CalledNetwork, inputs: tuple[Tensor | None, ...], batch: int, seed: int, first: int
) -> list[Tensor]:
    """Generate in batches. seed, first: as of `generate_images`."""
    assert inputs[0] is not None
    images = []
    for row in range(0, len(inputs[0]), batch):
        rng.seed_globally(rng.key(seed, "sample/noise", first + row))
        rows = (None if tensor is None else tensor[row : row + batch] for tensor in inputs)
        # Not all generators end in a tanh.
        images.append(GeneratorOutput.of(generator(*rows)).images.clamp(-1, 1))
    return images


@runtime_checkable
class MultiStep(Protocol):
    """A module inside of a generator that samples in several steps."""

    sampling_steps: int


def steps_protocol(generator: nn.Module) -> dict[str, int]:
    """Return the number of steps as an entry of a score's protocol; nothing for a generator without a solver."""
    modules = _multi_step(generator)
    return {"steps": modules[0].sampling_steps} if modules else {}


@contextmanager
def with_steps(generator: nn.Module, steps: int | None) -> Iterator[None]:
    """Sample in this many steps inside the block; None: unchanged. Raises `ConfigError` if it has none."""
    if steps is None:
        yield
        return
    modules = _multi_step(generator)
    if not modules:
        raise ConfigError("steps: this generator makes one step; leave it out")
    if type(steps) is not int or steps < 1:
        raise ConfigError(f"steps={steps!r} must be an integer from 1; change it")
    before = [module.sampling_steps for module in modules]
    try:
        for module in modules:
            module.sampling_steps = steps
        yield
    finally:
        for module, number in zip(modules, before, strict=True):
            module.sampling_steps = number


def _multi_step(generator: nn.Module) -> list[MultiStep]:
    return [module for module in generator.modules() if isinstance(module, MultiStep)]


def grid_latents(prior: Prior, columns: int = 10, rows: int = 8) -> tuple[Tensor, Tensor | None]:
    """Return fixed latents for sample sheets: one class per row, equal latents per column."""
    if not prior.num_comparable_classes:
        return prior.draw("grid", Rows(step=0, first=0, count=columns * rows, total=columns * rows))
    classes = min(prior.num_classes, 10)
    z, _ = prior.draw("grid", Rows(step=0, first=0, count=columns, total=columns))
    labels = torch.arange(classes, device=prior.device)
    return z.repeat(classes, 1), labels.repeat_interleave(columns)


@torch.no_grad()
def with_standing_statistics(original: nn.Module, batches: Iterable[tuple[Tensor, Tensor | None]]) -> nn.Module:
    """Return a copy whose running statistics are the means of those of these batches of latents and labels.

    Running statistics lag behind the weights, and behind their average most of all. Other layers stay in evaluation
    mode. Raises `ConfigError` for a generator without batch norm.
    """
    net = copy_networks(original).eval()
    norms = [module for module in net.modules() if isinstance(module, BatchNorm | nn.modules.batchnorm._BatchNorm)]
    if not norms:
        raise ConfigError("--standing-stats: this generator has no batch norm; leave it out")
    momenta = [norm.momentum for norm in norms]
    with preserved_state(original):
        for number, (z_BZ, y_B) in enumerate(batches, start=1):
            rng.seed_globally(number)
            for norm in norms:
                norm.train()
                norm.momentum = 1 / number  # the mean of all batches so far
            begin_update(net)
            net(z_BZ) if y_B is None else net(z_BZ, y_B)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return net.eval()
