"""Base of the penalties that a config names: what they take from their options."""

from paragan.core.protocols import Penalty
from paragan.core.types import Side
from paragan.penalties._options import LazyOptions, PenaltyOptions, SideOptions


class OptionsPenalty(Penalty):
    """A penalty with the weight of its options, and with their period or side if they have one."""

    def __init__(self, options: PenaltyOptions) -> None:
        self.options = options
        self.weight = options.weight
        if isinstance(options, LazyOptions):
            self.interval = options.interval
        if isinstance(options, SideOptions):
            self.side = Side(options.side)
