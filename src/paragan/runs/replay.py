"""Replay of an asynchronous run in its recorded order of updates, compared bit for bit."""

from __future__ import annotations

from pathlib import Path

import torch

from paragan.checkpoint.reader import Checkpoint, read_checkpoint
from paragan.checkpoint.writer import CheckpointWriter
from paragan.config import RunConfig, read_recipe
from paragan.config.sections import ANY
from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.runs.open_run import config_path
from paragan.runs.run_request import RunRequest
from paragan.runs.start import start_training
from paragan.schemes.asynchronous.update_order import read_used


def replay_run(path: Path, out: Path | None = None, trust: bool = False) -> tuple[int, str]:
    """Repeat the asynchronous run at `path` in `out` and compare the last common checkpoint.

    Returns the exit code and one line of text, which is empty if training failed.

    out: RUN/replay unless given. Raises `CheckpointError` for a folder that is not a run,
    `ConfigError` for a run that is not asynchronous.
    """
    config_file = config_path(path)
    outside = ANY if trust else ()
    config = read_recipe(str(config_file), (), outside)
    if config.scheme.name != "asynchronous":
        raise ConfigError(
            f"replay needs a run with the asynchronous scheme; this one has {config.scheme.name}, "
            "without a recorded order; to repeat it, run the same command with another --out"
        )
    steps = _num_steps(path, config)
    kimg = steps * config.train.batch * config.d.updates_per_step / 1000
    order = f"scheme.order={path.resolve()}"
    overrides = [order, f"train.kimg={kimg:g}", "writers=[jsonl, console]"]
    folder = out or path / "replay"
    repetition = read_recipe(str(config_file), overrides, outside)
    request = RunRequest(repetition, str(config_file), folder, True, has_commands=True, overrides=tuple(overrides))
    code = start_training(request)
    return (code, "") if code else _compare(path, folder, steps)


def _num_steps(path: Path, config: RunConfig) -> int:
    """Return the number of steps that are recorded for both players."""
    num_g, num_d = (min(map(len, read_used(path, side))) for side in (Side.G, Side.D))
    return min(num_g, num_d // config.d.updates_per_step)


def _compare(original: Path, repetition: Path, steps: int) -> tuple[int, str]:
    """Compare the newest checkpoint that both folders have."""
    folders = (original, repetition)
    names = [{path.name for path in CheckpointWriter(folder / "checkpoints").paths()} for folder in folders]
    name = max(names[0] & names[1], default=None)
    if name is None:
        text = f"{original} has no checkpoint to compare with (every.keep)"
        return 0, f"replayed {steps} steps; {text}"
    a, b = (read_checkpoint(folder / "checkpoints" / name) for folder in (original, repetition))
    different = _first_difference(a, b)
    if different is not None:
        return 2, f"replayed {steps} steps; at step {a.step} {different} differs"
    return 0, f"replayed {steps} steps; at step {a.step} all tensors are equal bit for bit"


def _first_difference(a: Checkpoint, b: Checkpoint) -> str | None:
    for group, tensors in a.groups.items():
        for name, value in tensors.items():
            if name not in b.groups[group] or not torch.equal(value, b.groups[group][name]):
                return f"{group}: {name}"
    return None
