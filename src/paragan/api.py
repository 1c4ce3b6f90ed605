"""A trained generator in three lines: `paragan.load("runs/digits").sample(16).save("samples.png")`."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path

from paragan import build, config
from paragan.core.fill import ANY
from paragan.core.printable import printable
from paragan.engine.generator import Reader, opened
from paragan.engine.sampler import Sampler


def load(path: str | Path, trust: bool = False, best: bool = False) -> Sampler:
    """The generator of a run folder (its newest undamaged checkpoint) or of a file that `paragan export` wrote.

    trust: outside code that its config names is imported; otherwise such a config is refused. best: of a run the
    checkpoint with the best score instead. Nothing is unpickled, the training data is not needed, and nothing is
    written. Raises children of `paragan.ParaganError`.
    """
    outside = ANY if trust else ()
    read, text = partial(config.load, outside=outside), partial(config.loads, outside=outside)
    return opened(Path(path), Reader(read, text, lambda read: build.data(read), _warn), best)


def _warn(line: str) -> None:
    warnings.warn(printable(line), stacklevel=2)
