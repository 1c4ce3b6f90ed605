"""Construction of a run's objects from its config: game, grid, workers, data."""

from paragan.build.data import Data, open_data
from paragan.build.game import gan, prior, scheme, with_synchronous_scheme
from paragan.build.game_trainer import trainer, writers
from paragan.build.networks import network_factory
from paragan.build.players import policy, strategy_on_ranks
from paragan.build.terms import adversarial

__all__ = [
    "Data",
    "adversarial",
    "gan",
    "network_factory",
    "open_data",
    "policy",
    "prior",
    "scheme",
    "strategy_on_ranks",
    "trainer",
    "with_synchronous_scheme",
    "writers",
]
