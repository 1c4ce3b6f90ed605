"""Which numbers of a run share a chart, and one sentence of what each chart tells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from paragan.report.charts import Caption, Chart, Plot, evaluation_chart, series_chart
from paragan.report.metric_notes import explanation, note_of
from paragan.report.record import RecordEntry, metric_names
from paragan.report.series import Series

_MOST = 24  # charts of numbers that no panel knows


@dataclass(frozen=True)
class Panel:
    """A chart of all series whose names match."""

    section: str
    title: str
    names: str
    note: str
    floor: float | None = None


PANELS = (
    Panel(
        "game",
        "D(real), D(held out) and D(fake)",
        r".*/(real|fake|held_out)",
        "Mean logit of D on training, held-out and generated images. Real and fake apart, but not racing apart, is "
        "healthy; equal: D cannot tell. Held out far below real: D memorises.",
    ),
    Panel(
        "game",
        "Adversarial losses",
        r".*/loss/adversarial",
        "They balance and need not fall; look for jumps, not for a minimum.",
    ),
    Panel(
        "game",
        "Gradient norms",
        r".*/gradient_norm",
        "Before clipping. Steady growth or lasting spikes: D or G is losing its footing.",
    ),
    Panel(
        "game",
        "Penalties",
        r".*/loss/(?!adversarial$).*",
        "As they enter the loss. One that dwarfs the losses is too strong.",
    ),
    Panel(
        "telemetry",
        "D's accuracy",
        r".*/accuracy_(train|held_out|fake)",
        "On training, held-out and generated images. Training far above held-out: D memorises.",
        0.0,
    ),
    Panel(
        "telemetry",
        "Adaptive augmentation",
        r"(.*/)?(sign|augment_p)",
        "Mean sign of D on real images, and how often each augmentation happens; p near 1: too few images.",
    ),
    Panel(
        "telemetry", "Overfitting of D", r".*/overfitting", "0: none; towards 1: D knows the training images by heart."
    ),
    Panel(
        "telemetry",
        "Saturation of D",
        r".*/saturation",
        "Share of images D is certain about; near 1, G learns little.",
        0.0,
    ),
    Panel(
        "telemetry",
        "Ratio of gradient norms",
        r"(.*/)?gradient_norm_ratio",
        "G over D. Far from its usual level: one of them runs away.",
    ),
    Panel("telemetry", "Diversity of samples", r"(.*/)?diversity", "A fall towards 0 is mode collapse.", 0.0),
    Panel(
        "telemetry",
        "Top singular values",
        r".*/top_singular_value",
        "The largest over the layers. Sudden growth comes before collapse.",
    ),
    Panel(
        "population",
        "Score of the mixtures",
        r"score/(best|median)",
        "Of the best cell and of the middle one: together they close in, apart the best runs ahead.",
    ),
    Panel(
        "pace",
        "Lag and age",
        r".*/(lag|age)",
        "Steps that D was behind as G met it, and that the images were as D was shown them.",
        0.0,
    ),
    Panel(
        "pace",
        "Waiting for the other player",
        r".*/wait_ms",
        "Milliseconds per update. Long on one side only: give the other more ranks, or less work.",
        0.0,
    ),
    Panel("pace", "Learning rates", r".*/lr", "As the optimisers used them.", 0.0),
    Panel(
        "pace",
        "Images per second",
        r"images_per_s",
        "Real images through D: a moving average over about the last 50 steps.",
        0.0,
    ),
    Panel(
        "pace",
        "Waiting for data",
        r"data_wait",
        "Share of the time. Above a few percent: the data is too slow for the device.",
        0.0,
    ),
)


def section_charts(section: str, series: Mapping[str, Series], kimg: float) -> list[Chart]:
    """The charts of one section that have something to show; two or four of them are drawn wider."""
    found = [(panel, names) for panel, names in _matching_panels(section, series) if names]
    wide = len(found) in (2, 4)
    return [
        series_chart(
            Caption(f"{section}-{number}", panel.title, panel.note, panel.floor),
            Plot(540, 220, kimg) if wide else Plot(360, 190, kimg),
            dict(zip(series_labels(names), (series[name] for name in names), strict=True)),
        )
        for number, (panel, names) in enumerate(found)
    ]


def _matching_panels(section: str, series: Mapping[str, Series]) -> list[tuple[Panel, list[str]]]:
    """Panels and the series they show. "other": what no panel knows, each by itself."""
    if section == "other":
        left = [name for name in series if not any(re.fullmatch(panel.names, name) for panel in PANELS)]
        return [(Panel("other", name, "", ""), [name]) for name in left[:_MOST]]
    wanted = [panel for panel in PANELS if panel.section == section]
    return [(panel, [name for name in series if re.fullmatch(panel.names, name)]) for panel in wanted]


def sort_by_panel(series: Iterable[str]) -> list[str]:
    """Names as the panels show them, unknown ones last."""
    left = list(series)
    known = [name for panel in PANELS for name in left if re.fullmatch(panel.names, name)]
    return list(dict.fromkeys([*known, *left]))


def metric_charts(scores: Sequence[RecordEntry], kimg: float) -> list[Chart]:
    """One per metric; the first is drawn larger."""
    charts = []
    for number, name in enumerate(metric_names(scores)):
        told = [m for m in scores if name in m.values]
        note = note_of(name)
        plot = Plot(540, 430, kimg, right_margin=20) if number == 0 else Plot(300, 150, kimg, right_margin=14)
        floor = None if note.direction < 0 else 0.0
        caption = Caption(f"metric-{number}", name, note.short, floor, explanation(name))
        charts.append(evaluation_chart(caption, plot, name, told, best_evaluation(name, told)))
    return charts


def best_evaluation(metric: str, scores: Iterable[RecordEntry]) -> RecordEntry | None:
    """The best evaluation by this metric; None where it has no direction or no finite value."""
    sense = note_of(metric).direction
    told = [(m, m.numbers()[metric]) for m in scores if metric in m.numbers()]
    finite = [(m, value) for m, value in told if value - value == 0]
    return max(finite, key=lambda pair: sense * pair[1])[0] if sense and finite else None


def series_labels(names: Sequence[str]) -> list[str]:
    """What tells the names apart: "d/loss/adversarial" and "g/loss/adversarial" are D and G."""
    if len(names) == 1:
        return [names[0].split("/")[-1].replace("_", " ")]
    words = [re.split(r"[/_]", name) for name in names]
    before = _common_prefix_length(words)
    after = _common_prefix_length([w[before:][::-1] for w in words])
    kept = [w[before : len(w) - after] or w[-1:] for w in words]
    told = [" ".join(w).upper() if len(" ".join(w)) == 1 else " ".join(w) for w in kept]
    return told if len(set(told)) == len(names) else list(names)


def _common_prefix_length(words: Sequence[Sequence[str]]) -> int:
    """Length of the common beginning."""
    return next((i for i, column in enumerate(zip(*words, strict=False)) if len(set(column)) > 1), min(map(len, words)))
