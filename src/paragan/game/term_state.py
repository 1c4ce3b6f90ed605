"""State of the terms of a player: read where they hold it, so that a tensor that a term replaces is saved, too."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from paragan.core.balancer import Balancer
from paragan.core.errors import ConfigError
from paragan.core.protocols import Adaptive, Penalty
from paragan.core.skipped_state import Place
from paragan.game.registered_state import kind_of

Owner = Penalty | Adaptive | Balancer


class TermState(Mapping[str, Tensor]):
    """The tensors of penalties, augmentations and balancers under `OWNER/NAME`, moved to a device, and read from there.

    Raises `ConfigError` for a state that is not a dict of tensors by name, and for two of one name.
    """

    def __init__(self, side: str = "", owners: tuple[Owner, ...] = (), device: torch.device | None = None) -> None:
        self._side = side
        self._owners = [(owner, owner.state) for owner in owners]
        self._places: dict[str, Place] = {}
        self._kinds: list[dict[str, str]] = []
        for owner, state in self._owners:
            self._kinds.append(_kinds(side, owner.name, state))
            for name, value in state.items():
                key = f"{owner.name}/{name}"
                if key in self._places:  # a penalty may have the name of the augmentation or of the balancer
                    raise ConfigError(f"{side}: two terms have a state {key!r}, of which one would be lost; rename one")
                state[name] = value.to(device)
                self._places[key] = (state, name)

    def __getitem__(self, key: str) -> Tensor:
        state, name = self._places[key]
        value = state[name]
        assert value is not None
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def check(self) -> None:
        """Raise `ConfigError` for tensors that no resumed run would have: others than at first. Run before a save."""
        for (owner, state), before in zip(self._owners, self._kinds, strict=True):
            now = _kinds(self._side, owner.name, owner.state)
            for name in sorted(before.keys() | now.keys()):
                if before.get(name) != now.get(name):
                    raise ConfigError(
                        f"{self._side}: state[{name!r}] of {owner.name} changes from {before.get(name, 'no value')} to "
                        f"{now.get(name, 'no value')}, so a resumed run would not have it: create all tensors in "
                        "__init__, with their final shape and dtype, and detach() what you put there"
                    )
            if owner.state is not state:
                raise ConfigError(
                    f"{self._side}: {owner.name} sets its state to another dict, which would not be saved: set tensors "
                    "in the dict of __init__, as in self.state[NAME] = tensor"
                )


def _kinds(side: str, owner: str, state: object) -> dict[str, str]:
    """Return the shape and dtype of each tensor of a state, and whether it has a gradient."""
    if not isinstance(state, dict):
        raise ConfigError(
            f"{side}: state of {owner} is of type {type(state).__name__}; set a dict of tensors by name, as in "
            "self.state = {'mean': torch.zeros(())}"
        )
    for name, value in state.items():
        if not (isinstance(name, str) and isinstance(value, Tensor)):
            raise ConfigError(
                f"{side}: state[{name!r}] of {owner} is of type {type(value).__name__}; names are strings and values "
                "are tensors, as in self.state = {'mean': torch.zeros(())}: hold what is not saved in another attribute"
            )
    # a graph in it would be walked again by the backward pass of the next turn
    return {name: f"{kind_of(v)} with a gradient" if v.requires_grad else kind_of(v) for name, v in state.items()}
