"""Distance of G's output to a target in the features of a frozen network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.core.outputs import mean_per_sample
from paragan.core.protocols import Penalty, PenaltyContext
from paragan.core.types import Side
from paragan.core.weight_schedule import WeightSchedule
from paragan.layers.frozen import Frozen
from paragan.layers.precision import at_least_float32


@dataclass(eq=False, kw_only=True)
class PerceptualLoss(Penalty):
    """Perceptual or feature loss of G (Johnson et al. 2016, equation 2; Zhang et al. 2018, equation 1).

    network: a `Frozen`, or a module that becomes one. layers: names of its modules whose outputs are
    compared, or weights by name; None: what it returns, a tensor, a sequence or a mapping. Every
    distance is the mean over all axes of a sample, and they are summed. distance: `l1`, |a - b|, or
    `l2`, (a - b)^2. normalize: features have unit length along axis 1, as LPIPS. target: name of the
    tensor of the batch; None: the real sample. weight, interval: of the loss, as of every penalty.
    Raises `ConfigError` for a layer that the network lacks, and for a target that does not fit.
    """

    network: nn.Module
    layers: Sequence[str] | Mapping[str, float] | None = None
    distance: Literal["l1", "l2"] = "l1"
    normalize: bool = False
    target: str | None = None
    weight: float | WeightSchedule = 1.0
    interval: int = 1
    name: str = "perceptual"
    side = Side.G

    def __post_init__(self) -> None:
        self._frozen = self.network if isinstance(self.network, Frozen) else Frozen(self.network)
        layers = self.layers or ()
        self._weights = dict(layers) if isinstance(layers, Mapping) else dict.fromkeys(layers, 1.0)
        modules = dict(self._frozen.network.named_modules())
        for layer in self._weights:
            if layer not in modules:
                known = ", ".join(list(modules)[1:7])
                raise ConfigError(f"{self.name}: the network has no layer {layer!r}; its modules are {known}, …")
        if self.distance not in ("l1", "l2"):
            raise ConfigError(f"{self.name}: distance must be l1 or l2, not {self.distance!r}")

    def __call__(self, context: PenaltyContext) -> Tensor:
        generated = context.outputs.images
        target = self._target(context, generated)
        if self._frozen.device not in (None, generated.device):
            self._frozen.to(generated.device)
        fake = self.features(generated)
        with torch.no_grad():
            real = self.features(target)
        distances = [self._weights.get(name, 1.0) * self._distance(fake[name], real[name]) for name in fake]
        return self.weight_at(context.feed.rows) * torch.stack(distances).sum(0)

    @property
    def frozen_sha256(self) -> str:
        """Fingerprint of the network."""
        return self._frozen.sha256

    def features(self, x: Tensor) -> dict[str, Tensor]:
        """Return the compared features of samples by layer, in at least float32."""
        stored: dict[str, Any] = {}
        network = self._frozen.network
        hooks = [
            network.get_submodule(layer).register_forward_hook(partial(_store, stored, layer))
            for layer in self._weights
        ]
        try:
            output = self._frozen(x)
        finally:
            for hook in hooks:
                hook.remove()
        named = stored if self._weights else _named(output)
        invalid = [name for name, value in named.items() if not isinstance(value, Tensor) or len(value) != len(x)]
        if invalid or not named:
            what = f"{invalid[0]!r} is not a tensor" if invalid else "it returns nothing"
            raise ConfigError(
                f"{self.name}: {what} with a row per sample; let the network return tensors, or set layers"
            )
        values = {name: at_least_float32(value) for name, value in named.items()}
        return {name: _unit(value) for name, value in values.items()} if self.normalize else values

    def _target(self, context: PenaltyContext, generated: Tensor) -> Tensor:
        feed = context.feed
        assert feed.real is not None
        name = self.target or feed.sample_name
        if name not in feed.real.tensors:
            names = ", ".join(feed.real.tensors)
            raise ConfigError(f"{self.name}: target {name!r} is not in the batch, which has {names}; set target")
        target = feed.real.tensors[name]
        if target.shape != generated.shape:
            raise ConfigError(
                f"{self.name}: a sample of G has shape {tuple(generated.shape[1:])} and its target {name!r} "
                f"{tuple(target.shape[1:])}; give a target of the shape of G's output"
            )
        return target

    def _distance(self, fake: Tensor, real: Tensor) -> Tensor:
        difference = fake - real
        return mean_per_sample(difference.abs() if self.distance == "l1" else difference.square())


def _store(stored: dict[str, Any], name: str, module: nn.Module, inputs: Any, output: Any) -> None:
    # A copy: the next layer may overwrite it in place.
    stored[name] = output.clone() if isinstance(output, Tensor) else output


def _named(output: Any) -> Mapping[str, Any]:
    if isinstance(output, Mapping):
        return output
    several = output if isinstance(output, tuple | list) else (output,)
    return {str(number): value for number, value in enumerate(several)}


def _unit(features: Tensor) -> Tensor:
    return features * (features.square().sum(1, keepdim=True) + 1e-10).rsqrt()
