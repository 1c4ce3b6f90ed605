"""Plots of benchmarks and docs: every curve is drawn to scale, and the same values give the same text."""

import math
import re
import xml.etree.ElementTree as ElementTree

import pytest

pytest.importorskip("matplotlib", reason="matplotlib comes with the extra `dev`")
from benchmarks.plots import Curve, Panel, line_plot


def lines_of(text: str) -> list[list[tuple[float, float]]]:
    """Points of the curves, whose line is wider than those of axes and grid."""
    paths = [path for path in ElementTree.fromstring(text).iter() if path.tag.endswith("path")]
    drawn = [path.get("d") for path in paths if "stroke-width: 1.5" in path.get("style", "")]
    return [[(float(x), float(y)) for x, y in re.findall(r"[ML] (\S+) (\S+)", points)] for points in drawn]


def plot(points: list[tuple[float, float, float]], name: str = "a <b> & c") -> str:
    return line_plot("a title", [[Panel("<script>", "kimg", [Curve(name, points)])]])


def test_values_over_decades_have_a_logarithmic_axis():
    text = plot([(0, 1.0, 0.0), (50, 10.0, 0.0), (100, 100.0, 0.0)])
    curve, *_ = lines_of(text)
    (first, middle, last) = curve
    assert middle[0] - first[0] == pytest.approx(last[0] - middle[0], abs=0.01)
    assert first[1] - middle[1] == pytest.approx(middle[1] - last[1], abs=0.01)
    assert "<title>a title</title>" in text and "<script>" not in text and "a &lt;b&gt; &amp; c" in text


def test_same_values_give_the_same_text_without_a_date():
    points = [(0, 1.0, 0.5), (1, 2.0, math.inf), (2, math.nan, 0.0)]
    assert plot(points) == plot(points)
    assert "dc:date" not in plot(points) and "nan" not in plot(points) and "inf" not in plot(points)
