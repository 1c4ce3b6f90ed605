"""No parallelism: one process has the whole network and the whole batch."""

from paragan.parallel.base import strategy


class Strategy(strategy.Strategy):
    """Placement of a whole network on one rank."""
