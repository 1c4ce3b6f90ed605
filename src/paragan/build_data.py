"""From a resolved config to the images of both splits."""

from __future__ import annotations

from dataclasses import dataclass

from paragan.config import RunConfig
from paragan.core import shelf
from paragan.core.seams import Source, paired
from paragan.datasets._mapped import once_per_host


@dataclass(frozen=True)
class Data:
    train: Source
    held_out: Source
    flip: bool = False  # half of the images to train with are mirrored

    @property
    def num_classes(self) -> int:
        return len(self.train.class_names)

    @property
    def has_pairs(self) -> bool:
        return paired(self.train) is not None


def data(config: RunConfig, shared: bool = False) -> Data:
    """Both splits of the data set; `DataError` if the files are not what they should be. shared: with other processes
    of this host, in memory once.
    """
    module = shelf.load("datasets", config.data.name)
    found = (module.source(config.data.options, split) for split in ("train", "held_out"))
    train, held_out = map(once_per_host, found) if shared else found
    return Data(train, held_out, getattr(config.data.options, "flip", False))
