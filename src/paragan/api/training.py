"""Training from Python: `run = paragan.train("digits", {"train.kimg": 2})`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from paragan import config
from paragan.api.estimator import Estimator, instance
from paragan.api.python_words import in_python_words, setting_word, warn, warnings_as_lines
from paragan.api.trained import load
from paragan.config import RunConfig
from paragan.config.sections import ANY
from paragan.core.addresses import is_url
from paragan.core.dist import World
from paragan.core.errors import CheckpointError, ConfigError, describe_error
from paragan.core.files import read_json_lines
from paragan.core.network_factory import Model
from paragan.core.registry import check_extension
from paragan.core.settings_tree import shorten
from paragan.distributed.launch.rank_env import from_environment
from paragan.export.bundle import read_score
from paragan.export.class_labels import Label
from paragan.export.sampled_images import SampledImages
from paragan.export.sampler import Sampler
from paragan.report.notebook import run_html
from paragan.runs.folder import RunFolder
from paragan.runs.run_request import RunRequest, run_name
from paragan.runs.train import train_in_program
from paragan.writers.console import score_line


def train(
    recipe: str | RunConfig = "digits",
    settings: Mapping[str, Any] | None = None,
    *,
    out: str | Path | None = None,
    fresh: bool = False,
    generator: Any = None,
    discriminator: Any = None,
    trust: bool = False,
) -> Run:
    """Train as `paragan train` does, in a run folder, and return the run.

    recipe: a name of `paragan list recipes`, a YAML file, or a `RunConfig`. settings: values by dotted key, such as
    {"train.kimg": 2}; only for a recipe. out: the run folder, or its address in an object store; runs/RECIPE unless
    given. Repeating the call resumes from the newest checkpoint; fresh: start a new run and set the former one aside.

    generator, discriminator: networks from memory as `Estimator` takes them, or classes of them that are called without
    arguments. The run records where they came from; `paragan.load(out, generator=...)` opens it later. trust: import
    outside code that a config in a run folder names; a `RunConfig` was read before, and is trusted.

    One process trains; under torchrun each rank calls this. Ctrl-C saves a checkpoint and returns
    the unfinished run (`Run.is_finished`); a second one raises `KeyboardInterrupt` at once. Other
    signals that request a stop save and raise `SystemExit`. Outside the main thread, signals are
    left to the program. Raises children of `paragan.ParaganError`.
    """
    run_config = _resolved(recipe, settings, trust)
    name = run_name(recipe) if isinstance(recipe, str) else program_name()
    gan = _pair(generator, discriminator, run_config.seed)

    def objects(world: World) -> tuple[RunConfig, Model | None]:
        if gan is None:
            return run_config, None
        networks = gan.networks(world)  # with the weights of rank 0, which takes the connection of the ranks
        return networks.recorded_in(run_config), networks

    folder, address = _run_place(out or f"runs/{name}")
    run_in_folder(RunRequest(config=run_config, name=name, out=folder, fresh=fresh, address=address), objects)
    return Run(folder, gan, address)


def _run_place(out: str | Path) -> tuple[Path, str]:
    """Return the folder of a run on this machine, and its address in an object store; empty if it has none."""
    if not (isinstance(out, str) and is_url(out)):
        return _as_path(out), ""
    check_extension("buckets", f"out={out}")
    from paragan.extensions.buckets.remote_run import working_folder

    return working_folder(out), out


def run_in_folder(request: RunRequest, objects: Callable[[World], tuple[RunConfig, Model | None]]) -> None:
    """Train a run of a program. objects: returns its config and its networks from memory; collective."""
    place = from_environment()
    devices = request.config.devices
    if place is None and (devices or 1) > 1:
        raise ConfigError(
            f"devices={devices} needs as many processes; start the program with "
            f"`torchrun --nproc-per-node {devices} PROGRAM`, or leave devices out"
        )
    request = replace(request, place=place, resume_hint="Ctrl-C saves; the same program resumes")
    with warnings_as_lines(place is None or place.rank == 0), in_python_words(), _mirroring(request):
        train_in_program(request, objects)


def _mirroring(request: RunRequest) -> AbstractContextManager[None]:
    """Mirror the working folder of a run in an object store."""
    if not request.address:
        return nullcontext()
    from paragan.extensions.buckets.remote_run import mirroring

    return mirroring(request)


class Run:
    """A run folder, as `train` returns it: records and generator. Reading it writes nothing.

    folder: of the run. networks: those of a run with networks from memory. address: of the run, if
    the folder is a working folder.
    """

    def __init__(self, folder: str | Path, networks: Estimator | None = None, address: str = "") -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise CheckpointError(f"{folder} does not exist; was the run folder moved?")
        self.address = address
        self.networks = networks

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    def _repr_html_(self) -> str:
        """Return the newest samples, the score and a link to the report, which notebooks show."""
        return run_html(self.folder, score_line(read_score(self.folder)))

    @cached_property
    def config(self) -> RunConfig:
        """All settings of the run, as recorded."""
        return config.read_recipe(str(self.folder / "config.yaml"), outside=ANY)  # the program named the folder

    @cached_property
    def generator(self) -> Sampler:
        """Generator of the newest checkpoint, read once."""
        generator = None if self.networks is None else self.networks.g
        return load(self.folder, trust=True, generator=generator)

    @property
    def is_finished(self) -> bool:
        """Whether the run has reached its length and its last score; `resume` continues others."""
        return RunFolder(self.folder).is_finished()

    def sample(self, n: int, labels: Label | Sequence[Label] | None = None, seed: int | None = None) -> SampledImages:
        """Return n images of the trained generator; `generator.sample` has more options."""
        return self.generator.sample(n, labels, seed)

    def resume(self, settings: Mapping[str, Any] | None = None) -> Run:
        """Train from the newest checkpoint, as `train` does; return the run.

        settings: values by dotted key that a resume may change, such as {"train.kimg": 4}.
        """
        g, d = (None, None) if self.networks is None else (self.networks.g, self.networks.d)
        folder = self.folder
        if self.address:
            from paragan.extensions.buckets.remote_run import open_copy

            folder = open_copy(self.address, checkpoints=False)  # its config; `train` opens the rest
        recorded = str(folder / "config.yaml")
        return train(recorded, settings, out=self.address or self.folder, generator=g, discriminator=d, trust=True)

    @property
    def score(self) -> dict[str, float]:
        """Newest score of each metric; empty if scores are off."""
        entries = read_score(self.folder).items()
        return {name: value for name, value in entries if isinstance(value, float)}

    @property
    def history(self) -> list[dict[str, Any]]:
        """Numbers at the log points, oldest first: step, kimg, losses, learning rates, speed.

        A table for `pandas.DataFrame`. `records` reads the other lines of the record.
        """
        return self.records("step")

    def records(self, kind: str) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl of one kind, oldest first.

        kind: step, score, telemetry, samples, checkpoint or event.
        """
        return [dict(line) for line in self._lines() if line.get("kind") == kind]

    def _lines(self) -> Iterator[Mapping[str, Any]]:
        path = self.folder / "metrics.jsonl"
        try:
            yield from read_json_lines(path)
        except OSError as error:
            reason = describe_error(error)
            raise CheckpointError(f"{path} cannot be read ({reason}); was the run folder moved?") from None


def program_name() -> str:
    """Return the name of the started program, for its run folder."""
    name = Path(sys.argv[0]).stem
    return name if name[:1].isalnum() else "gan"


def local_run_folder(out: str | Path | None, name: str) -> Path:
    """Return the run folder of a program; `ConfigError` for an address."""
    if isinstance(out, str) and is_url(out):
        raise ConfigError(f"out={out} must be a folder here; `paragan.train` and `train --out` take addresses")
    return _as_path(out or f"runs/{name}")


def _as_path(out: object) -> Path:
    if not isinstance(out, str | os.PathLike):
        raise ConfigError(f"out must be the path of a folder, not {shorten(out)}")
    return Path(out)


def _resolved(recipe: str | RunConfig, settings: Mapping[str, Any] | None, trust: bool) -> RunConfig:
    if isinstance(recipe, str):
        words = [setting_word(key, value) for key, value in (settings or {}).items()]
        with in_python_words():
            return config.read_recipe(recipe, words, ANY if trust else None, warn)
    if settings:
        raise ConfigError("settings cannot be added to a RunConfig; pass them to paragan.config.read_recipe")
    return recipe


def _pair(generator: Any, discriminator: Any, seed: int) -> Estimator | None:
    if generator is None and discriminator is None:
        return None
    if generator is None or discriminator is None:
        missing = "generator" if generator is None else "discriminator"
        raise ConfigError(f"{missing} is missing; pass both generator and discriminator, or neither")
    return Estimator(instance(generator, seed), instance(discriminator, seed))
