"""Runs opened for reading: a trainer at a checkpoint."""

from collections.abc import Callable
from pathlib import Path

from paragan.config import RunConfig, read_recipe
from paragan.config.sections import outside_of_run
from paragan.core.command import program_command
from paragan.core.errors import CheckpointError, ConfigError
from paragan.core.outside_code import CodeFolder
from paragan.core.printable import print_to_stderr
from paragan.engine.training_loop import TrainingLoop
from paragan.runs.run_request import runner_of


def config_path(run: Path, alternative: str = "") -> Path:
    """Return the config file of a run folder. Raises `CheckpointError` for anything else.

    alternative: what else the caller takes, for the message.
    """
    path = run / "config.yaml"
    if path.is_file():
        return path
    problem = "is a file, not a run folder" if run.is_file() else "does not exist"
    if run.is_dir():
        problem = "is a folder without config.yaml"
    raise CheckpointError(f"{run} {problem}; pass a run folder, made by `{program_command()} train`{alternative}")


def read_with_steps(read: Callable[[list[str]], RunConfig], steps: int | None) -> RunConfig:
    """Return a config with a number of solver steps of the generator; None: unchanged.

    read: reads the config with words over it. `ConfigError` for a model without solver steps.
    """
    config = read([])
    if steps is None:
        return config
    if not hasattr(config.model.options, "steps"):
        raise ConfigError(f"--steps: {config.model.name} has no solver steps; leave it out")
    return read([f"model.steps={steps}"])


def open_run(
    path: Path,
    num_images: int | None = None,
    trust: bool | CodeFolder = False,
    best: bool = False,
    *,
    steps: int | None = None,
) -> TrainingLoop:
    """Return the trainer of a run folder at its newest checkpoint.

    steps: of the generator's solver, in place of `model.steps`. num_images: to score, instead of
    the run's number. trust: import the custom code that the config names, or that of a folder. best: use the checkpoint
    with the best score instead of the newest.

    Raises `CheckpointError` if `path` is not a run folder or has no checkpoint yet. Opening writes
    nothing; scoring saves a judge that it had to train, if the folder is writable.
    """
    source = str(config_path(path))
    settings = [] if num_images is None else [f"evaluation.num_images={num_images}"]
    outside = outside_of_run(trust)
    config = read_with_steps(lambda words: read_recipe(source, [*words, *settings], outside), steps)
    trainer = runner_of(config).open(config, path, print_to_stderr)
    if not trainer.resume(best):
        raise CheckpointError(f"{path} has no checkpoint yet; train longer, or lower every.save_kimg")
    return trainer
