"""The small networks of `translate` and `superres` on the rows of this rank."""

from paragan.core.dist import World
from paragan.core.types import Side
from tests.distributed.cases_laws import strategy
from tests.distributed.sessions import train_in_sessions
from tests.laws.image_recipes import BATCH, STEPS, batches, game, plain, player
from tests.laws.small_gan import distance


def plain_loop(world: World, folder: str, recipe: str, strategies: str, parts: int) -> float:
    """The largest difference of a weight from the plain loop; saved and built anew at steps 9 and 17."""

    def built():
        return game(recipe, *(player(recipe, side, strategy(strategies), world, parts) for side in Side))

    share = world.share(BATCH)
    gan = train_in_sessions(world, folder, (9, 17, STEPS), built, lambda start: batches(recipe, *share, start=start))
    nets = plain(recipe)
    return max(distance(s.strategy.weights(s.net), dict(nets[s.side].state_dict())) for s in (gan.g, gan.d))
