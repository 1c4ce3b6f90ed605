"""A scheme with roles outside the package: on two ranks G trains on one and D on the other, in lock-step."""

from paragan.core.roles import split_roles
from paragan.core.types import Side
from paragan.schemes import asynchronous


class Scheme(asynchronous.Scheme):
    def __init__(self):
        super().__init__(asynchronous.Options(staleness=0))

    def roles(self, world, timeout_s):
        if world.size != 2:
            raise ValueError("separate_ranks needs two ranks")
        self._roles = split_roles(world, {Side.G: 1, Side.D: 1}, timeout_s)
        return self._roles
