"""Construction of a run's objects from its config: game, grid, workers, data."""

from paragan.build.data import Data, open_data
from paragan.build.game import gan, in_turns, scheme
from paragan.build.game_trainer import trainer, writers
from paragan.build.latent_prior import prior
from paragan.build.networks import maker
from paragan.build.players import policy, strategy_on_ranks
from paragan.build.terms import adversarial

__all__ = [
    "Data",
    "adversarial",
    "gan",
    "in_turns",
    "maker",
    "open_data",
    "policy",
    "prior",
    "scheme",
    "strategy_on_ranks",
    "trainer",
    "writers",
]
