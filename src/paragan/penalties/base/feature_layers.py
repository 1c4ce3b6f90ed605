"""Features of a discriminator, which several penalties compare."""

from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.outputs import DiscriminatorOutput


def feature_layers(output: DiscriminatorOutput, penalty: str, name: str) -> tuple[Tensor, ...]:
    """Return the layers of the discriminator `name`; `ConfigError` if it returns no features."""
    if not output.layers:
        raise ConfigError(
            f"penalty {penalty} needs {f'discriminator {name}' if name else 'a D'} that returns features; let D return "
            "paragan.DiscriminatorOutput(logits, features)"
        )
    return output.layers
