"""Score distillation from a frozen teacher (Sauer et al. 2023, arXiv 2311.17042, "Adversarial Diffusion Distillation").

w t^0 |G(z) - teacher(x_t)|^2 for x_t, G's image noised at a random time, without its graph, and the
image that the teacher predicts from it, x_t - t v(x_t, t). The time weights of the paper are left
out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from paragan.core import protocols, rng
from paragan.core.errors import ConfigError
from paragan.core.files import read_bytes
from paragan.core.option_types import FilePath
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Side
from paragan.core.weight_schedule import Weight
from paragan.layers.frozen import Frozen
from paragan.penalties._options import PenaltyOptions
from paragan.penalties._velocity import velocity_network

_MAX_BYTES = 1 << 34
_EARLIEST = 0.1


@dataclass(frozen=True)
class Options(PenaltyOptions):
    """Teacher and weight. Needs a generator of velocities, `flow_unet`, of the teacher's sizes."""

    weight: Weight = 2.5
    """Weight of the term in the loss."""
    teacher: FilePath | None = None
    """The teacher's file, generator.safetensors of `paragan export`; required."""


class Penalty(protocols.Penalty):
    """Mean squared distance of G's image to the teacher's, per sample."""

    name = "distillation"
    side = Side.G

    def __init__(self, options: Options) -> None:
        self.interval = options.interval
        self.weight = options.weight
        self._weights = {} if options.teacher is None else _read(options.teacher)
        self._teacher: Frozen | None = None

    def __call__(self, context: PenaltyContext) -> Tensor:
        feed = context.feed
        images = context.outputs.images
        if self._teacher is None:
            self._teacher = Frozen(self._like(context.network.module), images.dtype)
        if self._teacher.device != images.device:
            self._teacher.to(images.device)
        drawn_B = rng.uniform(feed.seed, f"{self.name}/time", feed.rows, ())
        t_B = (_EARLIEST + (1 - _EARLIEST) * drawn_B).to(images, non_blocking=True)
        noise = rng.normal(feed.seed, f"{self.name}/noise", feed.rows, tuple(images.shape[1:]))
        t_B111 = t_B[:, None, None, None]
        with torch.no_grad():
            x_t = torch.lerp(images, noise.to(images, non_blocking=True), t_B111)
            target = x_t - t_B111 * self._teacher(x_t.flatten(1), feed.label, t_B)
        return self.weight_at(feed.rows) * (images - target).square().flatten(1).mean(1)

    def _like(self, generator: nn.Module) -> nn.Module:
        """Return a network of the sizes of G's velocity network with the weights of the file."""
        name, student = velocity_network(generator, self.name)
        if not self._weights:
            raise ConfigError("penalty distillation: teacher is required; pass generator.safetensors of the teacher")
        prefix = f"{name.removeprefix('module.')}."
        teacher = student.blank()
        try:
            teacher.load_state_dict({key.removeprefix(prefix): value for key, value in self._weights.items()})
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:100]
            problem = f"penalty distillation: the teacher does not fit G ({reason})"
            raise ConfigError(f"{problem}; give one of the same model and sizes") from None
        return teacher


def _read(path: str) -> dict[str, Tensor]:
    try:
        return load(read_bytes(Path(path), _MAX_BYTES))
    except (OSError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:100]
        problem = f"penalty distillation: teacher {path} cannot be read ({reason})"
        raise ConfigError(f"{problem}; give generator.safetensors of `export`") from None
