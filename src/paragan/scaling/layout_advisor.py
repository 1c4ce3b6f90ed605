"""Choice of layouts from measured times: of each layer, then of the whole step."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, prod

from paragan.game.options import LayoutOptions
from paragan.scaling.operator_record import Operator
from paragan.scaling.operator_times import AS_WRITTEN, Variant

OPERATOR_GAIN = 0.05  # least gain of a layer's layout
STEP_GAIN = 0.015  # least median gain of a step
GAMES = 3  # built for each comparison
PAIRS = 4  # of steps of each; one of all may be in favour of the plain networks

Step = Callable[[], float]


@dataclass(frozen=True)
class LayerTimes:
    """Seconds of one layer in a step, by layout. operator: of its training; calls: in a step."""

    layer: str
    operator: Operator
    calls: int
    seconds: Mapping[Variant, float]

    @property
    def chosen(self) -> Variant:
        """The fastest layout, if it gains `OPERATOR_GAIN`; else as written."""
        best = min(self.seconds, key=self.seconds.__getitem__)
        return best if self.seconds[best] < (1 - OPERATOR_GAIN) * self.seconds[AS_WRITTEN] else AS_WRITTEN


@dataclass(frozen=True)
class GroupTimes:
    """Seconds of siblings in a step, as written and as one product."""

    layers: tuple[str, ...]
    written_s: float
    merged_s: float

    @property
    def is_faster(self) -> bool:
        """Whether one product gains `OPERATOR_GAIN`."""
        return self.merged_s < (1 - OPERATOR_GAIN) * self.written_s


@dataclass(frozen=True)
class NetworkTimes:
    """Times of all layers of a network in one memory format."""

    channels_last: bool
    layers: tuple[LayerTimes, ...]
    groups: tuple[GroupTimes, ...] = ()

    @property
    def merged(self) -> dict[str, GroupTimes]:
        """Groups that are computed as one product, by each of their layers."""
        found: dict[str, GroupTimes] = {}
        for group in self.groups:
            if group.is_faster:
                found |= dict.fromkeys(group.layers, group)
        return found

    @property
    def layout(self) -> LayoutOptions | None:
        """Layout of the layers that are faster with one; None if no layer is."""
        alone = {one.layer: one.chosen for one in self.layers if one.layer not in self.merged}
        pad = {layer: variant.pad for layer, variant in alone.items() if variant.pad is not None}
        taps = tuple(layer for layer, variant in alone.items() if variant.taps)
        merge = tuple(dict.fromkeys(group.layers for group in self.merged.values()))
        return LayoutOptions(pad, taps, merge) if pad or taps or merge else None

    @property
    def written_s(self) -> float:
        """Seconds of all layers in a step, as written."""
        return sum(one.seconds[AS_WRITTEN] for one in self.layers)

    @property
    def laid_out_s(self) -> float:
        """Seconds of all layers in a step, with `layout`."""
        return sum(self.seconds_of(one) for one in self.layers)

    def seconds_of(self, one: LayerTimes) -> float:
        """Return the seconds of a layer with `layout`; of a sibling its share of the product."""
        group = self.merged.get(one.layer)
        if group is None:
            return one.seconds[one.chosen]
        return one.seconds[AS_WRITTEN] * group.merged_s / group.written_s

    def waste_of(self, one: LayerTimes, tile: int) -> float:
        """Return the padding waste of a layer with `layout`; of siblings that of their product."""
        group = self.merged.get(one.layer)
        if group is not None:
            members = [other.operator.outputs for other in self.layers if other.layer in group.layers]
            return padding_waste((one.operator.inputs, sum(members)), tile)
        channels = one.chosen.channels(one.operator)
        useful = (one.operator.inputs, one.operator.outputs) if one.chosen.pad is not None else channels
        return 1 - prod(useful) / prod(channels) * (1 - padding_waste(channels, tile))


def padding_waste(channels: tuple[int, int], tile: int) -> float:
    """Return the share of a product that is computed in vain as its channels fill tiles.

    channels: of input and output.
    """
    filled = prod(ceil(number / tile) * tile for number in channels)
    return 1 - prod(channels) / filled


def step_gain(make_steps: Callable[[], tuple[Step, Step]]) -> float | None:
    """Time steps in pairs; return the median gain of the other, None if it is not clearly faster.

    make_steps: returns two new games' steps, plain and other, each of which returns its seconds. The
    same game made twice may differ by some per cent, by where its tensors are: so several are
    made. It ends with the second pair in favour of the plain step.
    """
    gains: list[float] = []
    num_slower = 0
    for _ in range(GAMES):
        plain_s, other_s = make_steps()
        ratios = []
        for number in range(PAIRS):
            ratios.append(_time_pair(plain_s, other_s, number % 2 == 0))
            num_slower += ratios[-1] >= 1
            if num_slower > 1:
                return None
        gains.append(1 - statistics.median(ratios))
    return statistics.median(gains) if min(gains) >= STEP_GAIN else None


def _time_pair(plain_s: Step, other_s: Step, is_plain_first: bool) -> float:
    """Return the seconds of the other step as a ratio to those of the plain one."""
    if is_plain_first:
        seconds = plain_s()
        return other_s() / seconds
    seconds = other_s()
    return seconds / plain_s()
