"""Weak and strong scaling of the published BigGAN on 128 to 1,024 TPU cores, simulated: figures 8 and 10 of the poster.

Weak: two images on every core; the jitter of an update, which nobody published, is a curve. Strong: a step of 2,048
images on all cores, at a jitter of 3 %. How long a core takes for more than two images was not published: either in
proportion to them, or as if a core reached a V100's share of its peak with large batches (39 %), which leaves a fixed
part of 289 ms. Published_scaling.py has the sources.

python -m benchmarks.published_scaling_plots
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from benchmarks.plots import to_svg
from benchmarks.published_scaling import BATCH, D_MACS, G_MACS, STEPS, TPU_CORE, WORKERS, games, implied
from benchmarks.record import write
from paragan.extensions.planning.cluster import Cluster, find_interconnect
from paragan.extensions.planning.forecast import forecasts
from paragan.extensions.planning.forecast_plot import FIGURE_INCHES, add_legend, draw_losses, draw_scaling, draw_speeds
from paragan.extensions.planning.plan import Forecast, Goal, Scaling
from paragan.extensions.planning.profile import Curve, RunProfile
from paragan.extensions.planning.simulation import GameCosts

IMAGES = Path(__file__).resolve().parents[1] / "docs/images"
COUNTS = (128, 256, 512, 1024)
JITTERS = (0.0, 0.01, 0.03)
STRONG_JITTER = 0.03
KIMG = STEPS * BATCH / 1000
PROPORTIONAL, FIXED_PART = "in proportion to images", "with a fixed part"


def saturating(profile: RunProfile) -> RunProfile:
    """The profile of a core that reaches a V100's share of its peak with large batches: a fixed part, and per image."""
    share = implied()["share of the peak of a V100 in fp32"]
    image_s = 2 * (D_MACS + G_MACS) / (share * TPU_CORE)
    (measured_s,) = profile.step_s.values
    (rows,) = profile.step_s.rows
    factor = 1 + (BATCH - rows) * image_s / measured_s  # of the seconds for the whole batch

    def longer(curve: Curve) -> Curve:
        return Curve((rows, BATCH), (curve.values[0], factor * curve.values[0]))

    g = replace(profile.g, update_s=longer(profile.g.update_s))
    d = replace(profile.d, update_s=longer(profile.d.update_s))
    names = ("generate_s", "step_s", "alone_step_s")
    return replace(profile, g=g, d=d, **{name: longer(getattr(profile, name)) for name in names})


def rows_of(game: GameCosts, scaling: Scaling, jitter: float) -> list[dict[str, Any]]:
    """Forecasts of the published run on all numbers of cores."""
    cluster = Cluster(workers=1, network=find_interconnect("ici-v3"), jitter=jitter)
    return [asdict(row) for row in forecasts(game, cluster, Goal(KIMG, scaling), COUNTS, num_steps=300)]


def simulated() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """All curves of both figures."""
    game = games()["synchronous, fp32 gradients"]
    whole = replace(game, batch=BATCH)
    costs = {PROPORTIONAL: whole, FIXED_PART: replace(whole, profile=saturating(whole.profile))}
    return {
        "weak": {f"jitter {100 * jitter:g} %": rows_of(game, "weak", jitter) for jitter in JITTERS},
        "strong": {name: rows_of(each, "strong", STRONG_JITTER) for name, each in costs.items()},
    }


def plots(found: Mapping[str, Mapping[str, list[dict[str, Any]]]]) -> dict[str, str]:
    """Both figures as SVG, by file name. found: of `simulated`."""
    curves = {}
    for scaling, by_name in found.items():
        curves[scaling] = {name: [_forecast(row) for row in rows] for name, rows in by_name.items()}
    return {
        "published-weak-scaling.svg": _weak_plot(curves["weak"]),
        "published-strong-scaling.svg": _strong_plot(curves["strong"]),
    }


def _forecast(row: Mapping[str, Any]) -> Forecast:
    """A row of a result file; older ones have a cost and limits, too."""
    names = {field.name for field in fields(Forecast)}
    return Forecast(**{name: value for name, value in row.items() if name in names})


def _weak_plot(rows_by_name: Mapping[str, list[Forecast]]) -> str:
    uneven = f"jitter {100 * JITTERS[-1]:g} %"

    def draw(figure: Any) -> None:
        speeds, losses = figure.subplots(1, 2)
        draw_speeds(speeds, rows_by_name)
        draw_losses(losses, rows_by_name[uneven])
        losses.set_title(f"share of the time at {uneven}, %", loc="left", fontsize="medium")
        add_legend(figure)

    return to_svg("BigGAN 128x128, two images on every core (simulated)", FIGURE_INCHES, draw)


def _strong_plot(rows_by_name: Mapping[str, list[Forecast]]) -> str:
    hours = {}
    for name, rows in rows_by_name.items():
        hours[name] = [(row.workers, row.hours) for row in rows]
    last = rows_by_name[PROPORTIONAL][-1]
    whole = last.hours * last.efficiency * WORKERS

    def draw(figure: Any) -> None:
        times, losses = figure.subplots(1, 2)
        draw_scaling(times, hours, lambda workers: whole / workers)
        times.set_title(f"hours for {STEPS:,} steps of {BATCH:,}", loc="left", fontsize="medium")
        draw_losses(losses, rows_by_name[FIXED_PART])
        losses.set_title(f"share of the time {FIXED_PART} of 289 ms, %", loc="left", fontsize="medium")
        add_legend(figure)

    return to_svg("BigGAN 128x128, 2,048 images over all cores (simulated)", FIGURE_INCHES, draw)


def main() -> None:
    found = simulated()
    for scaling, by_name in found.items():
        for name, rows in by_name.items():
            for row in rows:
                speed = f"{row['images_per_s']:,.0f} images/s, {row['efficiency']:.1%}, {row['hours']:.1f} h"
                print(f"{scaling}, {name}, {row['workers']:,} cores: {speed}")
    note = f"simulated on TPU v3 links; strong: jitter {100 * STRONG_JITTER:g} %; hours for {KIMG:,.0f} kimg"
    write("published-scaling-plots", {"note": note, "rows": found})
    for name, text in plots(found).items():
        (IMAGES / name).write_text(text)


if __name__ == "__main__":
    main()
