"""Packaged extractor of the run's data set if it fits the images, otherwise the judge."""

from dataclasses import dataclass

from paragan.core import registry
from paragan.core.option_types import Choice


@dataclass(frozen=True)
class Options:
    """No settings."""


def resolve(dataset: str, shape: tuple[int, int, int]) -> Choice:
    """Return the extractor named as the data set if it accepts this image shape, else the judge."""
    is_made_for = dataset in registry.names("features") and registry.load_module("features", dataset).accepts(shape)
    name = dataset if is_made_for else "judge"
    return Choice(name, registry.options("features", name)())
