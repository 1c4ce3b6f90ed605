"""Table of a layout: time and padding waste of each layer, before and after."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from paragan.cli.table import format_table

if TYPE_CHECKING:
    from paragan.scaling.layout_plan import LayerPlan, LayoutPlan

_LAYERS = 12  # with most time; the document has all


def format_layout(plan: LayoutPlan) -> str:
    """Return the layers with most time as a table, the trials of whole steps, and what was chosen."""
    head = ("layer", "operator", "calls", "time", "", "waste", "", "fastest layout")
    rows = [head, *map(_row, plan.layers[:_LAYERS])]
    rest = plan.layers[_LAYERS:]
    if rest:
        rows.append((f"{len(rest)} more", "", "", *_shares(rest), "", "", ""))
    other = 1 - sum(one.share_before for one in plan.layers)
    rows.append(("other", "norms, activations, optimisers", "", f"{max(0.0, other):.1%}", "", "", "", ""))
    unit = f"tiles of {plan.tile} channels"
    lines = [f"layout    {1000 * plan.step_s:,.4g} ms a step of {plan.rows} rows on {plan.device}, {unit}"]
    lines += [format_table(rows, indent=2)]
    lines += [f"  {trial}" for trial in plan.trials]
    return "\n".join([*lines, f"  {describe_choice(plan)}"])


def describe_choice(plan: LayoutPlan) -> str:
    """Return the chosen settings in one line."""
    if not plan.settings:
        return "chosen: the plain networks"
    settings = " ".join(f"{key}={_text(value)}" for key, value in plan.settings.items())
    return f"chosen: {settings}, a step takes {plan.gain:.1%} less"


def _row(one: LayerPlan) -> tuple[str, ...]:
    waste = (f"{one.waste_before:.0%}", f"-> {one.waste_after:.0%}")
    return (
        f"{one.side}.{one.layer}",
        one.operator,
        f"{one.calls}x",
        *_shares([one]),
        *waste,
        one.change or "as written",
    )


def _shares(layers: Any) -> tuple[str, str]:
    before = sum(one.share_before for one in layers)
    return f"{before:.1%}", f"-> {sum(one.share_after for one in layers):.1%}"


def _text(value: Any) -> str:
    return json.dumps(value, default=dataclasses.asdict)
