"""Layout of a run as a document: each layer before and after, and what was chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paragan.scaling.layout_advisor import LayerTimes, NetworkTimes, padding_waste
from paragan.scaling.operator_times import AS_WRITTEN


@dataclass(frozen=True)
class LayerPlan:
    """One layer in a step.

    share_before, share_after: of the plain step's time. waste_before, waste_after: share of the
    product that is computed in vain as channels fill tiles. change: the fastest layout of the layer.
    """

    side: str
    layer: str
    operator: str
    calls: int
    share_before: float
    share_after: float
    waste_before: float
    waste_after: float
    change: str


@dataclass(frozen=True)
class LayoutPlan:
    """Measured layouts of a recipe's networks on this device.

    tile: channels that one instruction computes. rows: of the measured steps. step_s: of a step with
    the plain networks; gain: measured of the chosen settings, 0 if the plain networks stay. settings:
    what was chosen by dotted key. trials: one line for each candidate.
    """

    device: str
    tile: int
    rows: int
    step_s: float
    gain: float
    settings: Mapping[str, Any]
    trials: tuple[str, ...]
    layers: tuple[LayerPlan, ...]


def plan_layers(side: str, now: NetworkTimes, after: NetworkTimes, step_s: float, tile: int) -> list[LayerPlan]:
    """Return the layers of a network as it is, and in the memory format of `after` with its layout."""
    found = []
    for before, one in zip(now.layers, after.layers, strict=True):
        operator = before.operator
        channels = (operator.inputs, operator.outputs)
        shares = (before.seconds[AS_WRITTEN] / step_s, after.seconds_of(one) / step_s)
        wastes = (padding_waste(channels, tile), after.waste_of(one, tile))
        text = describe_operator(one)
        found.append(LayerPlan(side, one.layer, text, one.calls, *shares, *wastes, _change(now, after, one)))
    return found


def describe_operator(one: LayerTimes) -> str:
    """Return operator and shapes of a layer: "conv2d 3x3, 64x37x32x32 to 37"."""
    operator = one.operator
    kernel = " " + "x".join(map(str, operator.taps)) if operator.taps else ""
    return f"{operator.name}{kernel}, {'x'.join(map(str, operator.x))} to {operator.outputs}"


def _change(now: NetworkTimes, after: NetworkTimes, one: LayerTimes) -> str:
    texts = []
    if now.channels_last != after.channels_last:
        texts.append("channels last" if after.channels_last else "contiguous")
    group = after.merged.get(one.layer)
    if group is not None:
        texts.append(f"one product with {len(group.layers) - 1} others")
    elif one.chosen.pad is not None:
        texts.append("padded to {} to {}".format(*one.chosen.pad))
    elif one.chosen.taps:
        texts.append("taps as outputs")
    return ", ".join(texts)
