"""What each metric measures, for readers of a report: the one table behind directions, notes and tooltips."""

from __future__ import annotations

import re
from dataclasses import dataclass

from paragan.report.record_values import single_line, to_mapping, to_number


@dataclass(frozen=True)
class MetricNote:
    """direction: -1: lower is better; 1: higher is better; 0: neither. short: below a chart. text: all of it."""

    direction: int
    short: str
    text: str


_LOWER, _HIGHER = "Lower is better.", "Higher is better."
_NOTES = {
    "fd": MetricNote(
        -1,
        _LOWER,
        "Fréchet distance between features of generated and of real images; 0 means equal mean and covariance. Values "
        "compare only for the same features and number of images.",
    ),
    "label_accuracy": MetricNote(
        1,
        _HIGHER,
        "Share of generated images that the classifier assigns to the class they were generated for. One good image "
        "per class scores 1: read it with the class variances.",
    ),
    "coverage": MetricNote(
        1,
        _HIGHER,
        "Share of real images that have a generated image nearby in feature space; 0.97 for a perfect generator. Low: "
        "parts of the data are never generated.",
    ),
    "class_variance_min": MetricNote(
        0,
        "Of the least varied class; 1 is as varied as real.",
        "Feature variance of generated images over that of real ones, in the class where it is least. Near 0: that "
        "class has collapsed.",
    ),
    "class_variance_mean": MetricNote(
        0,
        "Over the classes; 1 is as varied as real.",
        "Feature variance of generated images over that of real ones, averaged over the classes.",
    ),
    "l1": MetricNote(
        -1, _LOWER, "Mean absolute difference between generated and target images, whose values lie in [-1, 1]."
    ),
    "psnr": MetricNote(1, _HIGHER, "Peak signal-to-noise ratio of generated against target images, in decibels."),
    "ssim": MetricNote(1, _HIGHER, "Structural similarity of generated and target images; 1 for equal images."),
}
_UNKNOWN = MetricNote(0, "", "")


def note_of(metric: str) -> MetricNote:
    """The note of `fd[judge]` is that of `fd`; empty for a metric that is not in the table."""
    return _NOTES.get(metric.split("[")[0], _UNKNOWN)


def explanation(metric: str) -> str:
    """One or two sentences for a tooltip; empty where nothing is known."""
    features = re.search(r"\[(.+)\]", metric)
    text = note_of(metric).text
    return f"{text} Features of: {features.group(1)}." if text and features else text


def reliability(protocol: object) -> str:
    """How often the extractor of the scores is right, in a sentence; empty where that is unknown."""
    known = to_mapping(protocol)
    share, task = to_number(known.get("extractor_accuracy")), single_line(known.get("extractor_task"), 40)
    if share is None or not 0 <= share <= 1:
        return ""
    about = f" ({task})" if task not in ("", "classes") else ""
    return f"Extractor {single_line(known.get('extractor'), 40)}: right on {share:.1%} of held-out images{about}."
