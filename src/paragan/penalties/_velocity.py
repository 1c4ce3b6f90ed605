"""Generators that predict velocities of a flow, as `models/flow_unet` has them, and frozen ones as teachers."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from paragan.core.command import advise_missing
from paragan.core.errors import ConfigError
from paragan.core.files import read_bytes
from paragan.core.pieces import fingerprint
from paragan.layers.frozen import Frozen

_MAX_BYTES = 1 << 34


@runtime_checkable
class VelocityNetwork(Protocol):
    """A module inside of G that predicts noise minus image at a time."""

    def velocity(self, x: Tensor, y_B: Tensor | None, t_B: Tensor) -> Tensor:
        """Return the velocity (B, C, H, W) at images x."""

    def blank(self) -> nn.Module:
        """Return a network of the same sizes with other weights."""


def velocity_network(generator: nn.Module, penalty: str) -> tuple[str, VelocityNetwork]:
    """Return name and module of the velocity network in a generator. Raises `ConfigError` if it has none."""
    found = ((name, module) for name, module in generator.named_modules() if isinstance(module, VelocityNetwork))
    first = next(found, None)
    if first is None:
        raise ConfigError(f"penalty {penalty} needs a generator of velocities; use model flow_unet")
    return first


class Teacher:
    """A frozen velocity network with the weights of a file, of the sizes of a player's.

    path: generator.safetensors of `paragan export`. Errors name the penalty.
    """

    def __init__(self, path: str | None, penalty: str) -> None:
        self._penalty = penalty
        self._weights = {} if path is None else _read(path, penalty)
        self._network: Frozen | None = None

    @property
    def sha256(self) -> str:
        """Fingerprint of its weights."""
        return fingerprint(self._weights)

    def velocity(self, like: nn.Module, x: Tensor, y_B: Tensor | None, t_B: Tensor) -> Tensor:
        """Return its velocity (B, C, H, W) at images x. like: a network that holds one of its sizes."""
        if self._network is None:
            self._network = Frozen(self._blank(like), x.dtype)
        if self._network.device != x.device:
            self._network.to(x.device)
        found: Tensor = self._network(x.flatten(1), y_B, t_B)
        return found

    def _blank(self, like: nn.Module) -> nn.Module:
        """Return the teacher. Raises `ConfigError` if the weights of the file do not fit."""
        name, student = velocity_network(like, self._penalty)
        if not self._weights:
            problem = f"penalty {self._penalty}: teacher is required"
            raise ConfigError(f"{problem}; pass generator.safetensors of the teacher")
        prefix = f"{name.removeprefix('module.')}."
        network = student.blank()
        try:
            network.load_state_dict({key.removeprefix(prefix): value for key, value in self._weights.items()})
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:100]
            problem = f"penalty {self._penalty}: the teacher does not fit G ({reason})"
            raise ConfigError(f"{problem}; give one of the same model and sizes") from None
        return network


def _read(path: str, penalty: str) -> dict[str, Tensor]:
    try:
        return load(read_bytes(Path(path), _MAX_BYTES))
    except FileNotFoundError:
        problem = f"penalty {penalty}: teacher {path} does not exist"
        raise ConfigError(f"{problem}; {advise_missing(Path(path))}") from None
    except (OSError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:100]
        problem = f"penalty {penalty}: teacher {path} cannot be read ({reason})"
        raise ConfigError(f"{problem}; give generator.safetensors of `export`") from None
