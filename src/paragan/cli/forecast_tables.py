"""Tables of forecasts: a run on several numbers of workers, and what its time is lost to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paragan.cli.table import format_table

if TYPE_CHECKING:
    from paragan.extensions.planning.plan import ForecastPlan


_GBIT = 1e9 / 8
_LARGER_BATCH = (
    "note: hours count images, not quality; a larger batch usually needs more images for the same\n"
    "quality (--scaling strong keeps the recipe's batch)"
)


def format_forecast(plan: ForecastPlan) -> str:
    """Return two tables: the run on each number of workers, and what its time is lost to.

    For a batch that grows with the workers, a note says that images are not quality.
    """
    link = plan.cluster.network.between
    head = (
        f"forecast: {plan.goal.kimg:g} kimg, {plan.goal.scaling} scaling, from a profile of {plan.profile.machine}\n"
        f"network: {link.bytes_per_s * 8 / 1e9:g} Gbit/s, {link.latency_s * 1e6:g} us ({plan.cluster.network.source})"
    )
    hours = f"hours to {plan.goal.kimg:g} kimg"
    runs = [("workers", "batch", "step", "images/s", "efficiency", "sent per step", hours)]
    losses = [("workers", *plan.rows[0].losses)]
    for row in plan.rows:
        sent = format_bytes(round(sum(row.link_bytes.values())))
        times = (format_ms(row.step_s), f"{row.images_per_s:,.4g}", f"{row.efficiency:.1%}", sent)
        runs.append((f"{row.workers:,}", f"{row.batch:,}", *times, f"{row.hours:,.3g}"))
        losses.append((f"{row.workers:,}", *(f"{share:.1f} %" for share in row.losses.values())))
    grows = plan.goal.scaling == "weak" and plan.rows[-1].workers > 1
    note = f"\n{_LARGER_BATCH}" if grows else ""
    return f"{head}\n{_link_line(plan)}\n{format_table(runs)}{note}\n\n{format_table(losses)}"


def _link_line(plan: ForecastPlan) -> str:
    """Return what the largest number of workers needs of its links, and what they have."""
    row = plan.rows[-1]
    network = plan.cluster.network
    has = f"{network.between.bytes_per_s / _GBIT:.3g} (inside of a host {network.inside.bytes_per_s / _GBIT:.3g})"
    need = f"link: {row.workers:,} workers need {row.needed_bytes_per_s / _GBIT:.3g} Gbit/s each while they compute"
    return f"{need}; the network has {has}"


def format_ms(seconds: float) -> str:
    """Return seconds as milliseconds of three digits."""
    return f"{1000 * seconds:,.3g} ms"


def format_bytes(size: int) -> str:
    """Return a number of bytes in kB, MB or GB."""
    if size < 1e6:
        return f"{size / 1e3:,.1f} kB"
    return f"{size / 1e9:,.2f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
