"""Direction, note and tooltip of each metric of the report."""

from __future__ import annotations

import re
from dataclasses import dataclass

from paragan.report.record_values import single_line, to_mapping, to_number


@dataclass(frozen=True)
class MetricNote:
    """Description of a metric.

    direction: -1 if lower is better, 1 if higher is better, 0 if neither. short: below a chart.
    text: the tooltip.
    """

    direction: int
    short: str
    text: str


_LOWER = "Lower is better."
_HIGHER = "Higher is better."
_NOTES = {
    "fd": MetricNote(
        -1,
        _LOWER,
        "Fréchet distance between features of generated and of real images; 0 means equal mean and covariance. Values "
        "are comparable only for the same features and number of images.",
    ),
    "label_accuracy": MetricNote(
        1,
        _HIGHER,
        "Share of generated images that the classifier assigns to the class they were generated for. One good image "
        "per class scores 1: interpret it together with the class variances.",
    ),
    "coverage": MetricNote(
        1,
        _HIGHER,
        "Share of real images that have a generated image nearby in feature space; 0.97 for a perfect generator. Low: "
        "parts of the data are never generated.",
    ),
    "class_variance_min": MetricNote(
        0,
        "Least diverse class; 1 equals the diversity of real images.",
        "Ratio of the feature variance of generated images to that of real ones, in the least diverse class. Near "
        "0: that class has collapsed.",
    ),
    "class_variance_mean": MetricNote(
        0,
        "Mean over classes; 1 equals the diversity of real images.",
        "Ratio of the feature variance of generated images to that of real ones, averaged over the classes.",
    ),
    "l1": MetricNote(
        -1, _LOWER, "Mean absolute difference between generated and target images, with values in [-1, 1]."
    ),
    "psnr": MetricNote(1, _HIGHER, "Peak signal-to-noise ratio of generated against target images, in decibels."),
    "ssim": MetricNote(1, _HIGHER, "Structural similarity of generated and target images; 1 for equal images."),
}
_UNKNOWN = MetricNote(0, "", "")


def note_of(metric: str) -> MetricNote:
    """Return the note of a metric; `fd[judge]` has the note of `fd`, unknown metrics an empty one."""
    return _NOTES.get(metric.split("[")[0], _UNKNOWN)


def explanation(metric: str) -> str:
    """Return one or two sentences for a tooltip; empty for an unknown metric."""
    features = re.search(r"\[(.+)\]", metric)
    text = note_of(metric).text
    return f"{text} Features of: {features.group(1)}." if text and features else text


def reliability(protocol: object) -> str:
    """Return a sentence on the accuracy of the feature extractor; empty if it is unknown."""
    known = to_mapping(protocol)
    share = to_number(known.get("extractor_accuracy"))
    task = single_line(known.get("extractor_task"), 40)
    if share is None or not 0 <= share <= 1:
        return ""
    about = f" ({task})" if task not in ("", "classes") else ""
    extractor = single_line(known.get("extractor"), 40)
    return f"Feature extractor {extractor}: {share:.1%} accuracy on held-out images{about}."
