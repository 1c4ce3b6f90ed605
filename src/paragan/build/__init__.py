"""From a resolved config to objects: the game, a grid, its workers, the data. Constructs objects; decides nothing."""

from paragan.build.data import Data, open_data
from paragan.build.game import adversarial, gan, maker, policy, prior, scheme, trainer, writers

__all__ = ["Data", "adversarial", "gan", "maker", "open_data", "policy", "prior", "scheme", "trainer", "writers"]
