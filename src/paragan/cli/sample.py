"""`paragan sample`: images from a run's averaged generator."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from paragan.cli import opened
from paragan.core.errors import ConfigError
from paragan.core.types import Rows
from paragan.game.sample import sample, sampling_network
from paragan.writers.images import save_grid


def run(path: Path, num: int, seed: int | None, classes: list[str], out: Path | None) -> int:
    """Write a PNG grid of `num` samples and print where it is."""
    if out is not None and out.suffix.lower() != ".png":
        raise ConfigError(f"--out: found {str(out)!r}, expected a file name that ends in .png")
    run = opened.open_run(path)
    prior = run.prior(seed)
    z, y = prior.draw("sample", Rows(0, 0, num, num))
    if classes:
        y = _asked(classes, run.trainer.batches.source.class_names, y)
    x = sample(sampling_network(run.trainer.players["g"]), z, y)
    target = out or path / "samples" / f"sample-step-{run.trainer.clock.step}-seed-{prior.seed}.png"
    save_grid(x, target, columns=min(num, 10))
    print(target)
    return 0


def _asked(classes: list[str], names: tuple[str, ...], y_B: Tensor | None) -> Tensor:
    """The asked classes in turn, by name or number."""
    if y_B is None:
        raise ConfigError("--class: found a class, but this generator is unconditional; leave --class out")
    numbers = [
        names.index(c) if c in names else int(c) if c.isdecimal() and int(c) < len(names) else None for c in classes
    ]
    for name, number in zip(classes, numbers, strict=True):
        if number is None:
            raise ConfigError(
                f"--class: found {name!r}, expected one of {', '.join(names[:20])} or a number below {len(names)}"
            )
    return torch.tensor(numbers, device=y_B.device).repeat(-(-len(y_B) // len(numbers)))[: len(y_B)]
