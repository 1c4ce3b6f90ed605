"""Trained generators, opened with `load`."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from paragan.api.estimator import instance, sampling_networks
from paragan.api.networks import NamedGenerator
from paragan.api.trainer_arguments import checked_module
from paragan.config import RunConfig
from paragan.core.addresses import is_url
from paragan.core.errors import ConfigError
from paragan.core.from_memory import FROM_MEMORY
from paragan.core.network_factory import Model
from paragan.core.option_types import not_finite_item
from paragan.core.printable import to_printable
from paragan.core.registry import check_extension
from paragan.export.sampler import Sampler
from paragan.runs.open_generator import open_generator

_OF_TRAINER = {  # sections whose objects are arguments of `Trainer`
    "loss": "; an object is passed to paragan.Trainer(loss=…), a file of yours is loss=FILE.py",
    "penalties": "; objects are passed to paragan.Trainer(terms=[…])",
    "model": "; networks are passed to paragan.Trainer(generator, discriminator, …)",
    "data": "; data in memory is passed to paragan.Trainer(…, data)",
}


def load(
    path: str | Path,
    trust: bool = False,
    best: bool = False,
    *,
    generator: Any = None,
    device: str | torch.device = "auto",
    settings: Mapping[str, Any] | None = None,
) -> Sampler:
    """Open the generator of a run folder or its address, or of a file of `paragan export` or a published project.

    A run is opened at its newest undamaged checkpoint. trust: import outside code that the config
    names; otherwise such a config is refused. best: use the run's checkpoint with the best score.
    generator: for a run whose networks came from memory, the class that was trained or an object of
    it; a copy receives the trained weights. That of a `Trainer` samples if latents are its only
    input, otherwise `net` is called with its inputs by name. settings: by dotted key, for a checkpoint of a
    published project whose file does not tell them, such as {"data.sample_rate": 16000}; every tensor must
    find its place. device: auto (an accelerator if available), or a name
    that torch.device takes. Nothing is unpickled, the training data is not needed, and nothing is
    written. Raises children of `paragan.ParaganError`.
    """
    model = None if generator is None else partial(_networks, generator)
    folder = Path(path)
    if isinstance(path, str) and is_url(path):
        check_extension("buckets", path)
        from paragan.extensions.buckets.remote_run import open_copy

        folder = open_copy(path)
    words = [setting_word(key, value) for key, value in (settings or {}).items()]
    return open_generator(folder, trust, best, warn, model, device, settings=words)


def setting_word(key: str, value: Any) -> str:
    """Return a setting as the command line takes it; JSON is a part of its YAML. Raises `ConfigError` for objects."""
    if key == "preset":
        return f"{key}={value}"
    if (item := not_finite_item(value, key)) is not None:
        raise ConfigError(f"settings: {item[0]} is {item[1]}; pass a finite number")
    try:
        return f"{key}={json.dumps(value, allow_nan=False, ensure_ascii=False, default=os.fspath)}"
    except (TypeError, ValueError):
        raise ConfigError(
            f"settings: {key} is a {type(value).__name__}; pass a number, text, True, False, None, a list or a dict"
            f"{_OF_TRAINER.get(key.partition('.')[0], '')}"
        ) from None


def _networks(generator: Any, config: RunConfig) -> Model:
    """Return the networks of a run whose generator a program has passed."""
    if config.data.name == FROM_MEMORY:
        return NamedGenerator(checked_module(instance(generator, config.seed), "generator"))
    return sampling_networks(generator)


def warn(line: str) -> None:
    """Report a line as a Python warning."""
    warnings.warn(to_printable(line.removeprefix("warning: ")), stacklevel=3)


@contextmanager
def warnings_as_lines(is_main: bool = True) -> Iterator[None]:
    """Show warnings of this package as the line `warning: TEXT`, without the code that raised them.

    Filters and recorders of warnings work as without it. is_main: whether this rank prints them.
    """
    before = warnings.formatwarning
    package = str(Path(__file__).parents[1])

    def as_line(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        if category is UserWarning and filename.startswith(package):
            return f"warning: {to_printable(message)}\n" if is_main else ""
        return before(message, category, filename, lineno, line)

    warnings.formatwarning = as_line
    try:
        yield
    finally:
        warnings.formatwarning = before
