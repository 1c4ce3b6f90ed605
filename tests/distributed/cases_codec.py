"""The small codec on the rows of this rank."""

from paragan.core.dist import World
from paragan.core.types import Side
from tests.distributed.cases_laws import strategy
from tests.distributed.sessions import train_in_sessions
from tests.laws.codec_gan import BATCH, STEPS, batches, game, plain, player
from tests.laws.small_gan import distance


def plain_loop(world: World, folder: str, strategies: str, parts: int) -> float:
    """The largest difference of a weight from the plain loop; saved and built anew at steps 15 and 25."""
    is_relative = parts == 1

    def built():
        return game(*(player(side, strategy(strategies), world, parts) for side in Side), is_relative)

    share = world.share(BATCH)
    gan = train_in_sessions(world, folder, (15, 25, STEPS), built, lambda start: batches(*share, start=start))
    nets = plain(is_relative)
    return max(distance(s.strategy.weights(s.net), dict(nets[s.side].state_dict())) for s in (gan.g, gan.d))
