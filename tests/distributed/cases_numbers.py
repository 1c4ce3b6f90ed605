"""What ranks record of a step."""

import torch

from paragan.core.dist import World
from paragan.core.roles import colocated_roles
from paragan.core.types import Report
from paragan.engine.step_log import read_numbers

SHARES = (1e8, 1.0, -1e8)  # of rank 0, 1, 2: the sum in float32 depends on the order


def recorded(world: World) -> list[float]:
    """The number "loss" where it stands at each position among seven."""
    found = []
    for position in range(7):
        names = [f"other {n}" for n in range(7)]
        names[position] = "loss"
        share = torch.tensor(SHARES[world.rank])
        scalars = {name: share if name == "loss" else torch.zeros(()) for name in names}
        found.append(read_numbers(colocated_roles(world), Report(1, 1, scalars))["loss"])
    return found
