"""Extractor of the run's data set where there is one for its images, otherwise the judge."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from paragan.core import registry
from paragan.core.option_types import Choice, ExtractorOptions


@dataclass(frozen=True)
class Options(ExtractorOptions):
    """How the network is called."""


def resolve(options: Options, dataset: str, shape: tuple[int, int, int]) -> Choice:
    """Return the extractor with the name of the data set if it `accepts` images of this shape, else the judge."""
    is_made_for = dataset in registry.names("features") and registry.load("features", dataset).accepts(shape)
    name = dataset if is_made_for else "judge"
    return Choice(name, registry.options("features", name)(**asdict(options)))
