"""Several discriminators as one network."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from paragan.core.errors import ConfigError


class Discriminators(nn.ModuleDict):
    """Calls each discriminator with the same inputs, and returns their outputs by name.

    On named tensors (`paragan.Trainer`) each receives the inputs that its parameters name.
    `Discriminators(mpd=net, msd=net)`; weights are called `mpd.…`. A discriminator may return a
    list of outputs itself (`DiscriminatorOutput.of`). Raises `ConfigError` for a value that is no
    module, and for a name that `nn.ModuleDict` uses.
    """

    def __init__(self, **nets: nn.Module) -> None:
        super().__init__()
        # by discriminator, the numbers of its inputs among all, as `game.named_inputs` sets; missing: it receives all
        self.places: Mapping[str, Sequence[int]] = {}
        for name, net in nets.items():
            if not isinstance(net, nn.Module):
                raise ConfigError(f"discriminator {name} is a {type(net).__name__}; pass a torch.nn.Module")
            if not name or {".", "/"} & set(name) or name in dir(self):
                raise ConfigError(f"a discriminator cannot be called {name!r}; use another name, such as mpd")
            self[name] = net

    def forward(self, *inputs: Tensor | None) -> dict[str, Any]:
        places = {name: self.places.get(name, range(len(inputs))) for name in self}
        return {name: net(*(inputs[place] for place in places[name])) for name, net in self.items()}
