"""Page that compares runs: settings, scores, curves and samples, in one file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from paragan.core.files import write_text
from paragan.report import panels
from paragan.report.charts import NUM_TONES, Caption, Chart, Pen, means_chart
from paragan.report.comparison import ComparedRun, Comparison, listed_settings, protocol_name
from paragan.report.evaluation_charts import EvaluationCurve, evaluation_chart
from paragan.report.metric_notes import explanation, note_of
from paragan.report.plot import Plot, RunPosition, end_of
from paragan.report.readout import script_data
from paragan.report.record_entry import RecordEntry, every_second
from paragan.report.rendering import render_page
from paragan.report.sample_frames import MAX_FRAME_BYTES, MAX_FRAME_SIDE, Frame, SampleFrames, track_data
from paragan.report.terminal_comparison import run_texts, value_text

_MAX_CHARTS = 24  # per section
_MAX_POINTS = 200  # evaluations per curve
_MAX_STOPS = 60  # of the slider
_SECTIONS = {
    "population": "Population",
    "game": "Losses",
    "telemetry": "Telemetry",
    "pace": "Performance",
    "other": "Other series",
}


def save_comparison(comparison: Comparison, path: Path, rows: Sequence[Sequence[str]] = ()) -> None:
    """Write the page atomically. rows: name, state, kimg and score of all runs of a sweep."""
    write_text(path, render_comparison_page(comparison, rows))


def render_comparison_page(comparison: Comparison, rows: Sequence[Sequence[str]] = ()) -> str:
    """Return the page as HTML."""
    runs = comparison.runs
    end = end_of(max(run.history.kimg for run in runs), max(run.history.seconds for run in runs))
    metrics = _metric_charts(comparison, end)
    sections = [(title, _series_charts(id, runs, end)) for id, title in _SECTIONS.items()]
    drawn = [*metrics, *chain.from_iterable(charts for _, charts in sections)]
    frames = _frames(runs)
    sampled = [(run, found) for run, found in zip(runs, frames, strict=True) if found]
    settings, num_others = listed_settings(comparison)
    view = {
        "title": " · ".join(["comparison", *(run.name for run in runs)]),
        "kind": "comparison of runs",
        "source": "the run folders",
        "sweep": rows,
        "runs": [(run_texts(run), pen_of(number)) for number, run in enumerate(runs)],
        "warnings": comparison.warnings,
        "scores": [(row, [value_text(value) for value in row.values]) for row in comparison.scores],
        "protocol_names": comparison.protocol_names,
        "protocol_rows": comparison.protocol_differences,
        "settings": settings,
        "num_other_settings": num_others,
        "samples": [(run.label, run.name, found[-1]) for run, found in sampled],
        "tracks": [pen_of(runs.index(run)) for run, _ in sampled],
        "metrics": metrics,
        "sections": [(title, charts) for title, charts in sections if charts],
        "data": {
            "tracks": [track_data(found) for _, found in sampled],
            "stops": slider_stops([found for _, found in sampled]),
            "end": {"kimg": end.kimg, "seconds": end.seconds},
        }
        | script_data({chart.caption.id: chart.readout for chart in drawn}),
    }
    return render_page("compare.html.j2", view)


def pen_of(number: int, label: str = "") -> Pen:
    """Return the look of the lines of a run: five colours, then the same with dashes."""
    return Pen(label, number % NUM_TONES, number // NUM_TONES)


def slider_stops(frames: Sequence[Sequence[Frame]]) -> list[list[int]]:
    """Return for each stop of the slider the frame of every run: the latest up to the same kimg.

    A run without one that early has its first.
    """
    places = sorted({frame.kimg for frame in chain.from_iterable(frames)})
    stride = -(-len(places) // (_MAX_STOPS - 1)) or 1
    chosen = sorted({*places[::stride], *places[-1:]})
    return [[_latest(found, kimg) for found in frames] for kimg in chosen]


def _latest(frames: Sequence[Frame], kimg: float) -> int:
    return max(0, sum(frame.kimg <= kimg for frame in frames) - 1)


def _frames(runs: Sequence[ComparedRun]) -> list[list[Frame]]:
    """Return the frames of every run; together they take as much space as two reports."""
    share = 2 * MAX_FRAME_BYTES // len(runs)
    side = MAX_FRAME_SIDE // (2 if len(runs) < 5 else 4)
    return [SampleFrames(run.folder, share, side).choose(run.history.samples) for run in runs]


def _metric_charts(comparison: Comparison, end: RunPosition) -> list[Chart]:
    """Return a chart per metric and protocol, so that every chart has only values that compare."""
    charts: list[Chart] = []
    for metric in comparison.metrics:
        groups = _curves_by_protocol(comparison, metric)
        for protocol in list(groups)[: 2 * _MAX_CHARTS - len(charts)]:
            curves = groups[protocol]
            note = note_of(metric, curves[0].entries[-1].values)
            title = metric if len(groups) == 1 else f"{metric}, {protocol_name(protocol)}"
            floor = None if note.direction < 0 else 0.0
            caption = Caption(f"metric-{len(charts)}", title, note.short, floor, explanation(metric))
            charts.append(evaluation_chart(caption, Plot(540, 240, end), metric, curves, with_labels=True))
    return charts


def _curves_by_protocol(comparison: Comparison, metric: str) -> dict[int, list[EvaluationCurve]]:
    groups: dict[int, list[EvaluationCurve]] = {}
    for number, run in enumerate(comparison.runs):
        by_protocol: dict[int, list[RecordEntry]] = {}
        for entry in run.history.scores:
            if metric in entry.values:
                by_protocol.setdefault(comparison.protocol_of(run, entry), []).append(entry)
        for protocol, entries in by_protocol.items():
            while len(entries) > _MAX_POINTS:
                entries = every_second(entries)
            groups.setdefault(protocol, []).append(EvaluationCurve(pen_of(number, run.label), entries))
    return dict(sorted(groups.items()))


def _series_charts(section: str, runs: Sequence[ComparedRun], end: RunPosition) -> list[Chart]:
    """Return one chart per series of a section, with a line for each run that has it."""
    known = [run.history.population.curves | run.history.series for run in runs]
    names = list(dict.fromkeys(chain.from_iterable(known)))
    charts: list[Chart] = []
    for panel, matching in panels.matching_panels(section, names):
        labels = panels.series_labels(matching) if matching else []
        for name, label in zip(matching, labels, strict=True):
            title = panel.title if len(matching) == 1 else f"{panel.title}: {label}"
            note = panel.note if name == matching[0] else ""
            caption = Caption(f"{section}-{len(charts)}", title, note, panel.floor)
            having = [number for number, series in enumerate(known) if name in series]
            pens = [pen_of(number, runs[number].label) for number in having]
            series = [known[number][name] for number in having]
            charts.append(means_chart(caption, Plot(360, 190, end), pens, series))
    return charts[:_MAX_CHARTS]
