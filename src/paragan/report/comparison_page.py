"""Page that compares runs: settings, scores, curves and samples, in one file."""

from collections.abc import Mapping, Sequence
from itertools import chain

from paragan.report import panels
from paragan.report.chart import NUM_TONES, Caption, Chart, ChartCurve, draw_chart, run_end, script_data
from paragan.report.comparison import ComparedRun, Comparison, listed_settings
from paragan.report.record_values import RecordEntry, thin_out
from paragan.report.rendering import render_page
from paragan.report.sample_frames import MAX_FRAME_BYTES, MAX_FRAME_SIDE, Frame, SampleFrames, track_data
from paragan.report.series import Point
from paragan.report.terminal_comparison import run_texts, value_text

_MAX_CHARTS = 24  # of series per section; twice as many of metrics
_MAX_POINTS = 200  # evaluations per curve
_MAX_STOPS = 60  # of the slider
_SECTIONS = ("population", "game", "telemetry", "pace", "other")


def render_comparison_page(comparison: Comparison) -> str:
    """Return the page as HTML."""
    runs = comparison.runs
    end = run_end(max(run.history.kimg for run in runs), max(run.history.seconds for run in runs))
    metrics = _metric_charts(comparison, end)
    sections = [(panels.TITLES[id], _series_charts(id, runs, end)) for id in _SECTIONS]
    drawn = [*metrics, *chain.from_iterable(charts for _, charts in sections)]
    sampled = [(run, frames) for run, frames in zip(runs, _frames(runs), strict=True) if frames]
    settings, num_others = listed_settings(comparison)
    view = {
        "title": " · ".join(["comparison", *(run.name for run in runs)]),
        "kind": "comparison of runs",
        "source": "the run folders",
        "runs": [(run_texts(run), line_look(number)) for number, run in enumerate(runs)],
        "warnings": comparison.warnings,
        "scores": [(row, [value_text(value) for value in row.values]) for row in comparison.scores],
        "protocol_names": comparison.protocol_names,
        "protocol_rows": comparison.protocol_differences,
        "settings": settings,
        "num_other_settings": num_others,
        "samples": [(run.label, run.name, frames[-1]) for run, frames in sampled],
        "tracks": [line_look(runs.index(run)) for run, _ in sampled],
        "metrics": metrics,
        "sections": [(title, charts) for title, charts in sections if charts],
        "data": {
            "tracks": [track_data(frames) for _, frames in sampled],
            "stops": slider_positions([frames for _, frames in sampled]),
            "end": end,
            "one_run": False,
        }
        | script_data(drawn),
    }
    return render_page("compare.html.j2", view)


def line_look(number: int) -> dict[str, int]:
    """Return the look of the lines of a run: five colours, then the same with dashes."""
    return {"tone": number % NUM_TONES, "dash": number // NUM_TONES}


def slider_positions(tracks: Sequence[Sequence[Frame]]) -> list[list[int]]:
    """Return for each stop of the slider the frame of every run: the latest up to the same kimg.

    A run without one that early has its first.
    """
    places = sorted({frame.kimg for frame in chain.from_iterable(tracks)})
    stride = -(-len(places) // (_MAX_STOPS - 1)) or 1
    stops = sorted({*places[::stride], *places[-1:]})
    return [[_latest(frames, kimg) for frames in tracks] for kimg in stops]


def _latest(frames: Sequence[Frame], kimg: float) -> int:
    return max(0, sum(frame.kimg <= kimg for frame in frames) - 1)


def _frames(runs: Sequence[ComparedRun]) -> list[list[Frame]]:
    """Return the frames of every run; together they take as much space as two reports."""
    share = 2 * MAX_FRAME_BYTES // len(runs)
    side = MAX_FRAME_SIDE // (2 if len(runs) < 5 else 4)  # the sheets of all runs are next to one another
    return [SampleFrames(folder=run.folder, max_bytes=share, max_side=side).choose(run.history.samples) for run in runs]


def _metric_charts(comparison: Comparison, end: Mapping[str, float]) -> list[Chart]:
    """Return a chart per metric and protocol, so that every chart has only values that compare."""
    runs = comparison.runs
    charts: list[Chart] = []
    for metric in comparison.metrics:
        groups = _entries_by_protocol(comparison, metric)
        for protocol in list(groups)[: 2 * _MAX_CHARTS - len(charts)]:
            by_run = {number: thin_out(entries, _MAX_POINTS) for number, entries in groups[protocol].items()}
            title = metric if len(groups) == 1 else f"{metric}, protocol {protocol + 1}"
            latest = next(iter(by_run.values()))[-1]
            caption = panels.metric_caption(f"metric-{len(charts)}", metric, latest, title=title)
            curves = [_curve(n, runs[n], [e.point(metric) for e in entries]) for n, entries in by_run.items()]
            charts.append(draw_chart(caption, curves, end, "evaluations", (540, 240)))
    return charts


def _curve(number: int, run: ComparedRun, points: Sequence[Point]) -> ChartCurve:
    look = line_look(number)
    return ChartCurve(label=run.label, points=points, tone=look["tone"], dash=look["dash"])


def _entries_by_protocol(comparison: Comparison, metric: str) -> dict[int, dict[int, list[RecordEntry]]]:
    """Return the evaluations with a metric by protocol and number of the run."""
    groups: dict[int, dict[int, list[RecordEntry]]] = {}
    for number, run in enumerate(comparison.runs):
        for entry in run.history.scores:
            if metric in entry.values:
                by_run = groups.setdefault(comparison.protocol_of(entry, metric), {})
                by_run.setdefault(number, []).append(entry)
    return dict(sorted(groups.items()))


def _series_charts(section: str, runs: Sequence[ComparedRun], end: Mapping[str, float]) -> list[Chart]:
    known = [run.history.population.curves | run.history.series for run in runs]
    names = list(dict.fromkeys(chain.from_iterable(known)))
    charts: list[Chart] = []
    for panel, matching in panels.matching_panels(section, names):
        labels = panels.series_labels(matching) if matching else []
        for name, label in zip(matching, labels[: _MAX_CHARTS - len(charts)], strict=False):
            title = panel.title if len(matching) == 1 else f"{panel.title}: {label}"
            note = panel.note if name == matching[0] else ""
            caption = Caption(id=f"{section}-{len(charts)}", title=title, note=note, floor=panel.floor)
            numbers = [number for number, series in enumerate(known) if name in series]
            curves = [_curve(number, runs[number], known[number][name].points) for number in numbers]
            charts.append(draw_chart(caption, curves, end, "means"))
    return charts
