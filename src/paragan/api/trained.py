"""Trained generators, opened with `load`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from paragan.api.estimator import instance, sampling_networks
from paragan.api.networks import NamedGenerator
from paragan.api.python_words import setting_word, warn
from paragan.api.trainer_arguments import checked_module
from paragan.config import RunConfig
from paragan.core.addresses import is_url
from paragan.core.from_memory import FROM_MEMORY
from paragan.core.network_factory import Model
from paragan.core.registry import check_extension
from paragan.export.sampler import Sampler
from paragan.runs.open_generator import open_generator


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

    A run is opened at its newest undamaged checkpoint. trust: import outside code that the config names; otherwise such
    a config is refused. best: use the run's checkpoint with the best score. generator: for a run whose networks came
    from memory, the class that was trained or an object of it; a copy receives the trained weights. That of a `Trainer`
    samples if latents are its only input; otherwise `sample` is refused, and a program calls `net` with the inputs by
    name, as in `load(…).net(image=x)`. settings: by dotted key, for a checkpoint of a published project whose file does
    not tell them, such as {"data.sample_rate": 16000}; every tensor must find its place. device: auto (an accelerator
    if available), or a name that torch.device takes. Nothing is unpickled, the training data is not needed, and nothing
    is written. Raises children of `paragan.ParaganError`.
    """
    model = None if generator is None else partial(_networks, generator)
    folder = Path(path)
    if isinstance(path, str) and is_url(path):
        check_extension("buckets", path)
        from paragan.extensions.buckets.remote_run import open_copy

        folder = open_copy(path)
    words = [setting_word(key, value) for key, value in (settings or {}).items()]
    return open_generator(folder, trust, best, warn, model, device, settings=words)


def _networks(generator: Any, config: RunConfig) -> Model:
    """Return the networks of a run whose generator a program has passed."""
    if config.data.name == FROM_MEMORY:  # a run of `Trainer`, whose data is from memory, too: G's inputs have names
        return NamedGenerator(checked_module(instance(generator, config.seed), "generator"))
    return sampling_networks(generator)  # of `train(generator=…)`: G is called with latents and labels
