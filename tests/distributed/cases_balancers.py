"""Balancers on several ranks: the factors are those of the whole batch."""

from functools import cache, partial

from paragan.core.dist import World
from tests.distributed.cases_laws import strategy
from tests.laws.balanced_gan import PlainLoop, distance, game, play


@cache
def plain(name: str, steps: int) -> PlainLoop:
    loop = PlainLoop(name)
    loop.run(range(steps))
    return loop


def ranks_are_the_batch(world: World, name: str, kind: str, parts: int, steps: int) -> list[float]:
    """The largest difference of any weight from the plain loop, and of the factors that are recorded."""
    first, count = (0, 5) if world.rank == 0 else (5, 3)
    gan = game(name, partial(strategy, kind), world, parts)
    reports = play(gan, range(steps), first, count)
    told = reports[-1].read(world.sum)["g/balancer/adversarial"]
    return [distance(gan, plain(name, steps)), abs(told / plain(name, steps).factors[-1]["adversarial"] - 1)]
