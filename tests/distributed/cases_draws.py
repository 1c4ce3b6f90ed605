"""Games of the zoo, whose networks draw, on the rows of this rank."""

from collections.abc import Sequence
from typing import Any

from paragan.core.dist import World
from paragan.core.types import Side
from paragan.parallel import MemoryOptions
from paragan.schemes import shared_fakes, synchronous
from tests.distributed.cases_laws import strategy
from tests.laws import zoo_games
from tests.laws.small_gan import distance

SCHEMES = {"synchronous": synchronous, "shared_fakes": shared_fakes.Scheme()}
SHARES = {2: (3, 5), 3: (3, 1, 4), 4: (2, 1, 3, 2)}


def difference(
    world: World,
    model: str,
    g: str,
    d: str,
    options: dict[str, Any] | None = None,
    scheme: str = "synchronous",
    uneven: bool = False,
    recompute: bool = False,
    parts: int = 1,
    wanted: dict[str, Any] | None = None,
    steps: int = 2,
) -> float:
    """The largest difference of any weight from one process, after some steps."""
    counts: Sequence[int] = SHARES[world.size] if uneven else [zoo_games.ROWS // world.size] * world.size
    share = (sum(counts[: world.rank]), counts[world.rank])
    players = []
    for side, name in zip(Side, (g, d), strict=True):
        placed = strategy(name, options if name in ("pipeline", "tensor") else None)
        placed.memory = MemoryOptions(recompute=recompute)
        players.append(zoo_games.player(model, side, placed, world, parts, wanted))
    styled = model == "stylegan2" and parts == 1
    found = zoo_games.game(*players, model, styled)
    plain = zoo_games.alone(model, wanted=wanted, styled=styled)
    for gan, of in ((found, share), (plain, (0, zoo_games.ROWS))):
        stream = zoo_games.batches(model, *of)
        for _ in range(steps):
            SCHEMES[scheme].step(gan, stream)
    return distance(zoo_games.weights(found), zoo_games.weights(plain))


def all_under_ddp(world: World, models: Sequence[str]) -> dict[str, float]:
    return {model: difference(world, model, "ddp", "ddp", uneven=True, steps=1) for model in models}
