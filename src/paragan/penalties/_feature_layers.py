"""Features of one discriminator, as layers."""

from __future__ import annotations

from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.outputs import DiscriminatorOutput


def feature_layers(output: DiscriminatorOutput, penalty: str, name: str) -> tuple[Tensor, ...]:
    """Return the layers of the discriminator `name`; `ConfigError` if it returns no features."""
    if not output.layers:
        who = f"discriminator {name}" if name else "a D"
        raise ConfigError(
            f"penalty {penalty} needs {who} that returns features; let D return "
            "paragan.DiscriminatorOutput(logits, features)"
        )
    return output.layers
