"""`paragan replay`: an asynchronous run once more, each update with what it used then, and whether it ends the same."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paragan.cli.arguments import Run, Trust
from paragan.core.command import program_command
from paragan.core.errors import CheckpointError, ConfigError

Out = Annotated[Path | None, typer.Option(metavar="DIR", help="The folder of the repetition; RUN/replay unless given.")]


def replay(path: Run, out: Out = None, trust: Trust = False) -> None:
    """Repeat an asynchronous run and compare it bit for bit.

    The repetition goes from the start to the first stop, in the recorded order.
    Exit code 0: equal bit for bit; 2: not, with the first tensor that differs.
    """
    from paragan.cli.train_launch import start
    from paragan.config import load
    from paragan.config.config_reader import ANY

    config_file = path / "config.yaml"
    if not config_file.is_file():
        raise CheckpointError(
            f"{path}: found no config.yaml, expected a run folder as `{program_command()} train` makes it"
        )
    config = load(str(config_file), (), ANY if trust else ())
    if config.scheme.name != "asynchronous":
        raise ConfigError(
            f"replay: found scheme {config.scheme.name}, expected asynchronous, whose record tells an order; where no "
            "delays are, the same command with another --out repeats a run"
        )
    steps = _num_steps(path, config.d.updates_per_step)
    kimg = steps * config.train.batch * config.d.updates_per_step / 1000
    words = [f"scheme.order={path.resolve()}", f"train.kimg={kimg:g}", "writers=[jsonl, console]"]
    folder = out or path / "replay"
    code = start(load(str(config_file), words, ANY if trust else ()), str(config_file), words, folder, fresh=True)
    raise typer.Exit(code or _compared(path, folder, steps))


def _num_steps(path: Path, k: int) -> int:
    """As many as both players have on record."""
    from paragan.core.types import Side
    from paragan.schemes.asynchronous.update_order import read_used

    of_g, of_d = (min(len(of_rank) for of_rank in read_used(path, side)) for side in (Side.G, Side.D))
    return min(of_g, of_d // k)


def _compared(path: Path, again: Path, steps: int) -> int:
    """Say whether the newest checkpoint that both have holds the same."""
    import torch

    from paragan.checkpoint.reader import read_checkpoint
    from paragan.checkpoint.writer import CheckpointWriter

    kept, made = (CheckpointWriter(folder / "checkpoints") for folder in (path, again))
    both = sorted({p.name for p in kept.paths()} & {p.name for p in made.paths()})
    if not both:
        print(f"replayed {steps} steps; {path} keeps no checkpoint of them to compare with (every.keep)")
        return 0
    a, b = (read_checkpoint(checkpoints.folder / both[-1]) for checkpoints in (kept, made))
    for group, tensors in a.groups.items():
        for name, value in tensors.items():
            if name not in b.groups[group] or not torch.equal(value, b.groups[group][name]):
                print(f"replayed {steps} steps; at step {a.step} {group}: {name} differs")
                return 2
    print(f"replayed {steps} steps; at step {a.step} all tensors are equal bit for bit")
    return 0
