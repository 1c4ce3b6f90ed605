"""Lines about the pipelines of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from paragan.cli.forecast_tables import format_bytes, format_ms
from paragan.cli.table import format_table

if TYPE_CHECKING:
    from paragan.scaling.pipeline_plan import PipelinePlan


def format_pipelines(plans: Mapping[str, PipelinePlan]) -> str:
    """Return a table of each player's pipeline, and the settings that fix its cuts."""
    head = ("pipeline", "work of each rank", "micro-batches", "bubble", "equal counts", "sent", "forward + backward")
    rows = [head]
    for side, plan in plans.items():
        shares = " ".join(f"{share:.0%}" for share in plan.stage_shares)
        size = f"{plan.micro_batches} of {plan.rows}"
        waiting = (f"{plan.bubble:.1%}", f"{plan.equal_bubble:.1%}")
        time = "not measured" if plan.turn_s is None else format_ms(plan.turn_s)
        rows.append((f"  {side.upper()}", shares, size, *waiting, format_bytes(plan.sent_bytes), time))
    lines = [format_table(rows)]
    for side, plan in plans.items():
        cuts = ",".join(map(str, plan.cuts))
        chunks = " | ".join(_numbers(first, stop) for first, stop in pairwise((0, *plan.cuts, None)))
        lines.append(f"  {side}.strategy.cuts=[{cuts}]  blocks {chunks}")
    return "\n".join(lines)


def _numbers(first: int | None, stop: int | None) -> str:
    if stop is None:
        return f"{first}-"
    return f"{first}" if stop - (first or 0) == 1 else f"{first}-{stop - 1}"
