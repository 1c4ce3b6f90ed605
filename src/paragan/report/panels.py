"""Panels of the report: charts by section, each with its series, a title and a note."""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, takewhile

from paragan.report.chart import NUM_TONES, Caption, Chart, ChartCurve, draw_chart
from paragan.report.metric_notes import explanation, note_of
from paragan.report.record_values import RecordEntry, metric_names
from paragan.report.series import Series

_MAX_OTHER_CHARTS = 24  # of series without a panel
_TONES = {"real": 0, "D": 0, "train": 0, "fake": 1, "G": 1, "held out": 2}
_SEPARATE = "Its protocol changed; values before and after do not compare, so they are separate curves."


@dataclass(frozen=True)
class Panel:
    """Chart of all series whose names match the pattern `names`. floor: always within the scale."""

    title: str
    names: str
    note: str
    floor: float | None = None


TITLES = {
    "population": "Population",
    "game": "Losses",
    "telemetry": "Telemetry",
    "pace": "Performance",
    "loading": "Data loading",
    "other": "Other series",
}
PANELS: Mapping[str, tuple[Panel, ...]] = {
    "game": (
        Panel(
            "D outputs",
            r".*/(real|fake|held_out)",
            "Mean logit of D on training (real), held-out and generated (fake) images. A stable gap between real "
            "and fake is healthy; no gap: D cannot distinguish them. Held-out far below real: D overfits.",
        ),
        Panel(
            "Adversarial losses",
            r".*/loss/adversarial",
            "The losses balance each other and need not decrease. Look for sudden jumps, not for a minimum.",
        ),
        Panel(
            "D's loss by discriminator",
            r"(.*/)?d/loss/adversarial/.*",
            "Losses before their weights. A D whose loss stays at that of undecided logits learns nothing.",
        ),
        Panel(
            "G's loss by discriminator",
            r"(.*/)?g/loss/adversarial/.*",
            "Losses before their weights. One far above the others: G does not deceive that discriminator.",
        ),
        Panel("Outputs by discriminator, real", r".*/real/.*", "Mean logit on training samples."),
        Panel("Outputs by discriminator, fake", r".*/fake/.*", "Mean logit on generated samples."),
        Panel(
            "Factors of the balancer",
            r".*/balancer/.*",
            "The terms of G's loss are multiplied by these. One that grows without end: its gradient vanishes.",
        ),
        Panel(
            "Gradient norms",
            r".*/gradient_norm",
            "Norms before clipping. Steady growth or persistent spikes indicate unstable training.",
        ),
        Panel(
            "Penalties",
            r".*/loss/(?!adversarial(/|$)).*",
            "Values as added to the loss. A penalty much larger than the loss is too strong.",
        ),
    ),
    "telemetry": (
        Panel(
            "Accuracy of D",
            r".*/accuracy_(train|held_out|fake)",
            "Accuracy on training, held-out and generated images. Training far above held-out: D overfits.",
            0.0,
        ),
        Panel(
            "Adaptive augmentation",
            r"(.*/)?(sign|augment_p)",
            "Mean sign of D's output on real images, and augmentation probability p. p near 1: too few images.",
        ),
        Panel("Overfitting of D", r".*/overfitting", "0: no overfitting; near 1: D has memorised the training images."),
        Panel(
            "Saturation of D",
            r".*/saturation",
            "Share of images with saturated D output. Near 1, G receives little gradient.",
            0.0,
        ),
        Panel(
            "Ratio of gradient norms",
            r"(.*/)?gradient_norm_ratio",
            "Gradient norm of G divided by that of D. A strong change indicates unstable training.",
        ),
        Panel("Sample diversity", r"(.*/)?diversity", "A drop towards 0 indicates mode collapse.", 0.0),
        Panel(
            "Top singular values",
            r".*/top_singular_value",
            "Largest value over the layers. Sudden growth often precedes collapse.",
        ),
    ),
    "population": (
        Panel(
            "Mixture scores",
            r"score/(best|median)",
            "Scores of the best cell and of the median cell. A growing gap: only few cells improve.",
        ),
    ),
    "pace": (
        Panel(
            "Lag and age",
            r".*/(lag|age)",
            "Lag: steps that the D used by G was behind. Age: steps since the images used by D were generated.",
            0.0,
        ),
        Panel(
            "Wait for the other player",
            r".*/wait_ms",
            "Milliseconds per update. If only one player waits, assign the other more ranks or less work.",
            0.0,
        ),
        Panel("Weights of losses", r".*/weight/.*", "Weights that change in the run; 0: the loss does not act.", 0.0),
        Panel("Learning rates", r".*/lr(\[.*\])?", "Learning rates used by the optimizers.", 0.0),
        Panel("Throughput", r"images_per_s", "Real images per second, moving average over about 50 steps.", 0.0),
        Panel(
            "Data wait",
            r"data_wait",
            "Share of time spent waiting for data. Above a few percent, data loading is the bottleneck.",
            0.0,
        ),
        Panel(
            "Time per step",
            r"phases/.*",
            "Seconds per step, mean over ranks. Much communication: slow links, or a slow rank.",
            0.0,
        ),
    ),
    "loading": (
        Panel(
            "Read and decode time",
            r"loading/(read|decode)_ms",
            "Milliseconds of one read from storage and of one decode. A read that takes longer than usual: congestion.",
            0.0,
        ),
        Panel("Stalls", r"loading/stalls", "Share of the last seconds that training waited for a batch.", 0.0),
        Panel(
            "Loading threads",
            r"loading/(readers|decoders)",
            "Threads that read and that decode. The controller adds some under congestion and gives them back.",
            0.0,
        ),
        Panel("Depth", r"loading/depth", "Batches that are read ahead of the training step.", 0.0),
    ),
}


def section_charts(section: str, series: Mapping[str, Series], end: Mapping[str, float]) -> list[Chart]:
    """Return the charts of a section that have data; two or four charts are drawn wider."""
    matches = [(panel, names) for panel, names in matching_panels(section, series) if names]
    size = (540, 220) if len(matches) in (2, 4) else (360, 190)
    charts = []
    for number, (panel, names) in enumerate(matches):
        caption = Caption(id=f"{section}-{number}", title=panel.title, note=panel.note, floor=panel.floor)
        labels = series_labels(names)
        styles = zip(labels, names, _styles(labels), strict=True)
        curves = [
            ChartCurve(label=label, points=series[name].points, tone=tone, dash=dash)
            for label, name, (tone, dash) in styles
        ]
        charts.append(draw_chart(caption, curves, end, "ranges", size))
    return charts


def matching_panels(section: str, series: Collection[str]) -> list[tuple[Panel, list[str]]]:
    """Return panels with the names of their series. "other": each series without a panel."""
    if section == "other":
        patterns = [panel.names for panel in chain.from_iterable(PANELS.values())]
        others = [name for name in series if not any(re.fullmatch(p, name) for p in patterns)]
        return [(Panel(name, "", ""), [name]) for name in others[:_MAX_OTHER_CHARTS]]
    return [(p, [name for name in series if re.fullmatch(p.names, name)]) for p in PANELS[section]]


def sort_by_panel(series: Iterable[str]) -> list[str]:
    """Sort names in the order of the panels, unknown ones last."""
    names = list(series)
    matching = (n for panel in chain.from_iterable(PANELS.values()) for n in names if re.fullmatch(panel.names, n))
    return list(dict.fromkeys([*matching, *names]))


def metric_charts(scores: Sequence[RecordEntry], end: Mapping[str, float]) -> list[Chart]:
    """Return one chart per metric; the first is drawn larger."""
    charts = []
    for number, name in enumerate(metric_names(scores)):
        with_metric = [entry for entry in scores if name in entry.values]
        curves = _metric_curves(name, with_metric)
        caption = metric_caption(f"metric-{number}", name, with_metric[-1], _SEPARATE if len(curves) > 1 else "")
        size = (300, 150) if number else (540, 430)
        charts.append(draw_chart(caption, curves, end, "evaluations", size, with_names=False))
    return charts


def _metric_curves(metric: str, scores: Sequence[RecordEntry]) -> list[ChartCurve]:
    """Return one curve per protocol; the latest has the name of the metric, and the best mark."""
    best = best_evaluation(metric, scores)
    curves = []
    protocols = [entry.protocol_of(metric) for entry in scores]
    for order, protocol in enumerate(dict.fromkeys(protocols), 1):
        entries = [entry for entry, other in zip(scores, protocols, strict=True) if other == protocol]
        points = [entry.point(metric) for entry in entries]
        if protocol == protocols[-1]:
            marked = next((point for point, entry in zip(points, entries, strict=True) if entry is best), None)
            curves.append(ChartCurve(label=metric, points=points, tone=2, best=marked))
        else:
            curves.append(ChartCurve(label=f"{metric} by another protocol ({order})", points=points, tone=4))
    return curves


def metric_caption(id: str, metric: str, latest: RecordEntry, remark: str = "", title: str = "") -> Caption:
    """Return the texts of a chart of a metric. remark: after its note. title: if not its name."""
    note = note_of(metric, latest.values)
    text = f"{note.short} {remark}".strip()
    floor = None if note.direction < 0 else 0.0
    return Caption(id=id, title=title or metric, note=text, floor=floor, explanation=explanation(metric))


def best_evaluation(metric: str, scores: Sequence[RecordEntry]) -> RecordEntry | None:
    """Return the best evaluation by a metric; None without a direction or a finite value.

    Only evaluations by the protocol of the last one compare with it.
    """
    direction = note_of(metric, scores[-1].values if scores else None).direction
    known = [entry for entry in scores if metric in entry.numbers]
    latest = known[-1].protocol_of(metric) if known else None
    values = [(entry, entry.numbers[metric]) for entry in known if entry.protocol_of(metric) == latest]
    finite = [(entry, value) for entry, value in values if math.isfinite(value)]
    return max(finite, key=lambda pair: direction * pair[1])[0] if direction and finite else None


def series_labels(names: Sequence[str]) -> list[str]:
    """Return the parts in which names differ, such as D and G for "d/loss" and "g/loss"."""
    if len(names) == 1:
        return [names[0].split("/")[-1].replace("_", " ")]
    words = [re.split(r"[/_]", name) for name in names]
    prefix = _common_prefix_length(words)
    suffix = _common_prefix_length([w[prefix:][::-1] for w in words])
    parts = [w[prefix : len(w) - suffix] or w[-1:] for w in words]
    texts = [" ".join(part) for part in parts]
    short_texts = [text.upper() if len(text) == 1 else text for text in texts]
    return short_texts if len(set(short_texts)) == len(names) else list(names)


def _styles(labels: Sequence[str]) -> list[tuple[int, int]]:
    """Return colour and dashes of each curve: by its label, or the next free; then the colours again with dashes."""
    used = {_TONES.get(label) for label in labels}
    solid = [(tone, 0) for tone in range(NUM_TONES) if tone not in used]
    free = chain(solid, ((number % NUM_TONES, number // NUM_TONES) for number in count(NUM_TONES)))
    return [(_TONES[label], 0) if label in _TONES else next(free) for label in labels]


def _common_prefix_length(words: Sequence[Sequence[str]]) -> int:
    columns = zip(*words, strict=False)
    return len(list(takewhile(lambda column: len(set(column)) == 1, columns)))
