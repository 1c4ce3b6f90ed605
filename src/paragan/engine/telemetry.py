"""Telemetry: how D classifies images it was never trained on, and how diverse G's samples are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parametrize

from paragan.core import rng
from paragan.core.layout import gather_full, is_sharded
from paragan.core.outputs import DiscriminatorOutput, GeneratorOutput, mean_per_sample
from paragan.core.phases import Phase, phase
from paragan.core.protocols import Network
from paragan.core.source import Source
from paragan.core.types import Rows
from paragan.game.gan import GAN
from paragan.layers.precision import at_least_float32
from paragan.layers.random import preserved_state
from paragan.loading.normalise import normalise_images
from paragan.loading.order import Order

NUM_IMAGES = 256
_MAX_BYTES = 1 << 27  # of real images, per split
_NEAR = 0.1  # of values in [-1, 1]
_USEFUL = 0.01  # share of the gradient of an undecided D
_ITERATIONS = 15
_MAX_PAIRS = 16  # they are large, and their generators slow

Inputs = tuple[Tensor, Tensor | None, Tensor | None]  # images or latents, labels, conditions


@dataclass
class Telemetry:
    """Measurement of a game without effects on weights, buffers, gradients, modes, random state.

    One call costs one forward of G and three of D on `num_images` images (at most 16 for pairs),
    `batch` at a time, and one device synchronization. Images and latents are always the same; both
    networks run in training mode, as the game leaves them (batch norm uses batch statistics), and D's
    inputs are augmented if the game augments. train: None for other samples than images, whose values are left out.
    """

    train: Source | None
    held_out: Source
    num_images: int = field(default_factory=lambda: NUM_IMAGES)  # a factory, so that tests can lower the number
    batch: int = 64

    @phase(Phase.EVALUATION)
    def __call__(self, gan: GAN, scalars: Mapping[str, Tensor | float] = {}) -> dict[str, float]:
        """Compute the values by name (docs/how-to/results/telemetry.md). scalars: of the newest report.

        Left out: what needs missing held-out images or gradient norms, and the diversity where real images are equal.
        """
        g = gan.g.network()
        d = gan.d.network()
        with torch.no_grad(), preserved_state(g.module, d.module):
            rng.seed_globally(rng.key(gan.prior.seed, "telemetry"))  # of networks that draw
            values = {} if self.train is None else self._of_images(self.train, gan, g, d)
            values |= _gradient_norm_ratio(scalars)
            for side, net in (("g", g), ("d", d)):
                if sizes := singular_values(net.module):
                    largest = torch.stack([size.float() for size in sizes.values()]).amax()
                    values[f"{side}/top_singular_value"] = largest
            if not values:
                return {}
            numbers = torch.stack([value.to(gan.prior.device, torch.float32) for value in values.values()])
        return dict(zip(values, numbers.tolist(), strict=True))

    def _of_images(self, source: Source, gan: GAN, g: Network, d: Network) -> dict[str, Tensor]:
        """Compute the values that follow from real images, fakes and D's logits of them."""
        train = _placed(self._train, source, gan)
        count = len(train[0])
        z, y = gan.prior.draw("telemetry", Rows(step=0, first=0, count=count, total=count))
        fakes = _in_pieces(lambda *latents: GeneratorOutput.of(g(*latents)).images, (z, y, train[2]), self.batch)

        def judged(images: Inputs, kind: str) -> Tensor:
            x, y, condition = images
            if gan.augment is not None:
                # rows of the step at which a run has trained as many images: an augmentation that fades is as strong
                rows = Rows(step=gan.clock.images // len(x), first=0, count=len(x), total=len(x))
                x = gan.augment(x, gan.prior.seed, f"augment/telemetry/{kind}", rows)
            return _in_pieces(
                lambda *inputs: DiscriminatorOutput.of(d(*inputs)).logits_B.float(), (x, y, condition), self.batch
            )

        of_g = {"g/out_of_reach": out_of_reach(train[0], fakes)}
        if self._real_images_differ:
            of_g["diversity"] = nearest_distance(fakes) / nearest_distance(train[0])
        if not gan.d_has_begun:  # what an untrained D says means nothing
            return of_g
        on_train = judged(train, "train")
        on_fake = judged((fakes, y, train[2]), "fake")
        values = judgement(mean_per_sample(on_train), mean_per_sample(on_fake))
        if len(self.held_out):
            on_held_out = judged(_placed(self._held_out, self.held_out, gan), "held_out")
            values |= overfitting(*map(mean_per_sample, (on_train, on_held_out, on_fake)))
        return {**values, "d/saturation": saturation(gan.loss.d, on_train, on_fake), **of_g}

    @cached_property
    def _train(self) -> Mapping[str, Tensor]:
        assert self.train is not None
        return _random_rows(self.train, self.num_images)

    @cached_property
    def _real_images_differ(self) -> bool:
        return bool(nearest_distance(self._train["image"]) > 0)

    @cached_property
    def _held_out(self) -> Mapping[str, Tensor]:
        return _random_rows(self.held_out, self.num_images)


def judgement(train_B: Tensor, fake_B: Tensor) -> dict[str, Tensor]:
    """Compute D's accuracy on training images and fakes, from logits.

    The threshold is midway between their medians, so it is valid for losses whose zero has no meaning.
    """
    border = _border(train_B, fake_B)
    return {
        "d/accuracy_train": _share(train_B > border, border),
        "d/accuracy_fake": _share(fake_B < border, border),
    }


def overfitting(train_B: Tensor, held_out_B: Tensor, fake_B: Tensor) -> dict[str, Tensor]:
    """Compute D's accuracy and mean on held-out images, and its overfitting, from logits.

    That is r_v of Karras et al. 2020, "Training Generative Adversarial Networks with Limited Data", equation 1,
    within [-1, 1]: 0 if D judges held-out images as training images, 1 if as fakes.
    """
    border = _border(train_B, fake_B)
    held_out = held_out_B.mean()
    gap = train_B.mean() - fake_B.mean()
    ratio = ((train_B.mean() - held_out) / gap).clamp(-1, 1)
    return {
        "d/accuracy_held_out": _share(held_out_B > border, border),
        "d/held_out": held_out,
        # gap <= 0: D has learned nothing yet
        "d/overfitting": torch.where(gap <= 0, torch.zeros_like(ratio), ratio),
    }


def saturation(d_loss: Callable[[Tensor, Tensor], Tensor], real: Tensor, fake: Tensor) -> Tensor:
    """Return the share of logits with less than 1 % of the gradient at undecided logits (all 0)."""
    now = _slopes(d_loss, real, fake)
    undecided = _slopes(d_loss, torch.zeros_like(real), torch.zeros_like(fake)).mean()
    return _share(now < _USEFUL * undecided, now.sum())


def nearest_distance(x_BCHW: Tensor) -> Tensor:
    """Return the mean Euclidean distance of an image to the nearest other one; 0 of a single image."""
    x = x_BCHW.flatten(1).float()
    nearest = torch.cdist(x, x).fill_diagonal_(torch.inf).argmin(1)
    differences = x - x[nearest]  # `cdist` multiplies matrices: of equal images it is not exactly 0
    return differences.square().sum(1).sqrt().mean()


def out_of_reach(real: Tensor, fake: Tensor) -> Tensor:
    """Return the share of real values that are far from all generated ones: below the lowest, or above the highest."""
    low, high = fake.amin() - _NEAR, fake.amax() + _NEAR
    return _share((real < low) | (real > high), high)


def singular_values(net: nn.Module) -> dict[str, Tensor]:
    """Return the largest singular value of every layer's weight in use, by the layer's name.

    A weight is a matrix of (outputs, all other axes); embeddings are left out. 15 power iterations from a fixed start
    give a lower bound, at most a few per cent below the true value. Collective for sharded networks.
    """
    weights = ((name, module, _weight(module)) for name, module in net.named_modules())
    return {
        name: _top(_matrix(module, weight.detach()))
        for name, module, weight in weights
        if isinstance(weight, Tensor) and weight.dim() > 1 and not isinstance(module, nn.Embedding)
    }


def _weight(module: nn.Module) -> Tensor | None:
    """Return the unsharded weight that the layer uses."""
    if not parametrize.is_parametrized(module, "weight"):
        weight = getattr(module, "weight", None)
        return gather_full(weight) if isinstance(weight, Tensor) else None
    chain = cast(parametrize.ParametrizationList, cast(nn.ModuleDict, module.parametrizations)["weight"])
    originals = list(chain.parameters(recurse=False))  # weight norm has two: length and direction
    if not any(map(is_sharded, originals)):
        return cast(Tensor, module.weight)
    values = tuple(map(gather_full, originals))  # the layer would compute the weight from its shards
    for parametrization in chain:
        trained = {name: gather_full(value) for name, value in parametrization.named_parameters()}
        values = (functional_call(parametrization, trained, values),)
    return values[0]


def _random_rows(source: Source, max_rows: int) -> Mapping[str, Tensor]:
    """Fetch `max_rows` random rows, at least two, always the same; files are often sorted by class."""
    max_rows = min(max_rows, _MAX_PAIRS) if source.has_pairs else max_rows
    count = max(2, min(max_rows, len(source), _MAX_BYTES // prod(source.shape)))
    rows = Order(len(source), seed=0).at(np.arange(count) % len(source))
    return source.fetch(rows)


def _placed(reals: Mapping[str, Tensor], source: Source, gan: GAN) -> Inputs:
    """Move the inputs to the device; labels only if fakes have them, too."""
    moved = {name: value.to(gan.prior.device) for name, value in reals.items()}
    placed = normalise_images(moved, source, gan.prior.dtype)
    return placed["image"], placed.get("label") if gan.prior.num_classes else None, placed.get("condition")


def _in_pieces(call: Callable[..., Tensor], inputs: Inputs, batch: int) -> Tensor:
    """Call in chunks of nearly equal size: batch norm cannot take a last chunk of one sample."""
    num_pieces = -(-len(inputs[0]) // batch)
    cut = [[None] * num_pieces if tensor is None else tensor.tensor_split(num_pieces) for tensor in inputs]
    return torch.cat([call(*piece) for piece in zip(*cut, strict=True)])


def _border(train_B: Tensor, fake_B: Tensor) -> Tensor:
    return (train_B.median() + fake_B.median()) / 2


def _share(is_true: Tensor, threshold: Tensor) -> Tensor:
    """Return the share of true entries; NaN if the threshold of the comparison is not finite."""
    return is_true.float().mean() + 0 * threshold


def _slopes(d_loss: Callable[[Tensor, Tensor], Tensor], real: Tensor, fake: Tensor) -> Tensor:
    with torch.enable_grad():
        real = real.detach().requires_grad_()
        fake = fake.detach().requires_grad_()
        slopes = torch.autograd.grad(d_loss(real, fake).sum(), (real, fake), materialize_grads=True)
    return torch.cat([slope.flatten() for slope in slopes]).abs()


def _matrix(module: nn.Module, weight: Tensor) -> Tensor:
    transposed = isinstance(module, nn.modules.conv._ConvTransposeNd)
    return at_least_float32(weight.transpose(0, 1) if transposed else weight).flatten(1)


def _top(matrix: Tensor) -> Tensor:
    u = torch.randn(len(matrix), generator=rng.generator("telemetry", *matrix.shape)).to(matrix)
    for _ in range(_ITERATIONS):
        u = F.normalize(matrix @ F.normalize(matrix.mH @ u, dim=0), dim=0)
    return (matrix.mH @ u).abs().square().sum().sqrt()


def _gradient_norm_ratio(scalars: Mapping[str, Tensor | float]) -> dict[str, Tensor]:
    g = scalars.get("g/gradient_norm")
    d = scalars.get("d/gradient_norm")
    return {} if g is None or d is None else {"gradient_norm_ratio": torch.as_tensor(g) / torch.as_tensor(d)}
