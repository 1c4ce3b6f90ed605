"""Generators that predict velocities of a flow, as `models/flow_unet` has them, and frozen ones as teachers."""

from pathlib import Path
from typing import Protocol, runtime_checkable

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from paragan.core.command import advise_missing
from paragan.core.errors import ConfigError, describe_error
from paragan.core.files import read_bytes
from paragan.core.layout import fingerprint
from paragan.core.types import Side
from paragan.layers.frozen import Frozen
from paragan.penalties._options import TeacherOptions
from paragan.penalties.base.options_penalty import OptionsPenalty

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
    for name, module in generator.named_modules():
        if isinstance(module, VelocityNetwork):
            return name, module
    raise ConfigError(f"penalty {penalty} needs a generator of velocities; use model flow_unet")


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
        velocity: Tensor = self._network(x.flatten(1), y_B, t_B)
        return velocity

    def _blank(self, like: nn.Module) -> nn.Module:
        """Return the teacher. Raises `ConfigError` if the weights of the file do not fit."""
        name, student = velocity_network(like, self._penalty)
        if not self._weights:
            raise ConfigError(
                f"penalty {self._penalty}: teacher is required; pass generator.safetensors of the teacher"
            )
        prefix = f"{name.removeprefix('module.')}."
        network = student.blank()
        try:
            network.load_state_dict({key.removeprefix(prefix): value for key, value in self._weights.items()})
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:100]
            raise ConfigError(
                f"penalty {self._penalty}: the teacher does not fit G ({reason}); give one of the same model and sizes"
            ) from None
        return network


class TaughtPenalty(OptionsPenalty):
    """A penalty of G with a frozen teacher."""

    side = Side.G

    def __init__(self, options: TeacherOptions) -> None:
        super().__init__(options)
        self.teacher = Teacher(options.teacher, self.name)

    @property
    def frozen_sha256(self) -> str:
        """Fingerprint of the teacher's weights."""
        return self.teacher.sha256


def _read(path: str, penalty: str) -> dict[str, Tensor]:
    try:
        return load(read_bytes(Path(path), _MAX_BYTES))
    except FileNotFoundError:
        raise ConfigError(f"penalty {penalty}: teacher {path} does not exist; {advise_missing(Path(path))}") from None
    except (OSError, SafetensorError) as error:
        reason = describe_error(error)[:100]
        raise ConfigError(
            f"penalty {penalty}: teacher {path} cannot be read ({reason}); give generator.safetensors of `export`"
        ) from None
