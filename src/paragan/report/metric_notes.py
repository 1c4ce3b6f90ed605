"""Direction, note and tooltip of each metric of the report."""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from paragan.core import registry
from paragan.report.record_values import single_line, to_mapping, to_number

_IN_WORDS = {"judge": "a classifier trained on your images", "rotation": "it learns how an image is turned"}


@dataclass(frozen=True)
class MetricNote:
    """Description of a metric. text: tooltip.

    direction: -1 if lower is better, 1 if higher is better, 0 if neither.
    """

    direction: int
    text: str = ""

    @property
    def short(self) -> str:
        """Note below a chart."""
        if self.direction:
            return "Lower is better." if self.direction < 0 else "Higher is better."
        return self.text and f"{self.text.partition('. ')[0]}."


def note_of(metric: str, values: Mapping[str, Any] | None = None) -> MetricNote:
    """Return the note of a metric; `fd[judge]` has the note of `fd`.

    values: of a score, which states the direction of a metric of outside code; its file is not
    imported, since a record must not decide what is imported.
    """
    name = metric.split("[")[0]
    if name in registry.names("metrics"):
        return _note_of_file(name)
    direction = to_mapping((values or {}).get("directions")).get(metric)
    return MetricNote(int(direction) if direction in (-1, 1) else 0)


@cache
def _note_of_file(name: str) -> MetricNote:
    """Read the note of a metric from its source, because an import would import torch."""
    tree = ast.parse(registry.find_source("metrics", name).read_text(encoding="utf-8"))
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    kind = next(node for node in classes if node.name == "Metric")
    assigned = (node for node in kind.body if isinstance(node, ast.Assign))
    attributes = {ast.unparse(node.targets[0]): node.value for node in assigned}
    direction = ast.unparse(attributes["direction"]).rpartition(".")[2]
    return MetricNote({"LOWER": -1, "HIGHER": 1}.get(direction, 0), ast.literal_eval(attributes["note"]))


def explanation(metric: str) -> str:
    """Return one or two sentences for a tooltip; empty for an unknown metric."""
    features = re.search(r"\[(.+)\]", metric)
    text = note_of(metric).text
    return f"{text} Features of: {_IN_WORDS.get(features[1], features[1])}." if text and features else text


def reliability(protocol: object) -> str:
    """Return a sentence on the accuracy of the feature extractor; empty if it is unknown."""
    known = to_mapping(protocol)
    share = to_number(known.get("extractor_accuracy"))
    task = single_line(known.get("extractor_task"), max_length=40)
    if share is None or not 0 <= share <= 1:
        return ""
    about = f" ({_IN_WORDS.get(task, task)})" if task not in ("", "classes") else ""
    extractor = single_line(known.get("extractor"), max_length=40)
    return f"Feature extractor: {_IN_WORDS.get(extractor, extractor)}, {share:.1%} accuracy on held-out images{about}."
