"""Request of a run in a folder, and its runner: one game, or what an extension provides for a key of the config."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from paragan.config import RunConfig, outside_names
from paragan.core.addresses import is_url
from paragan.core.command import advise_missing
from paragan.core.errors import ConfigError, DataError
from paragan.core.outside_code import CodeFolder
from paragan.core.registry import check_extension
from paragan.datasets._options import AudioOptions, FolderOptions
from paragan.distributed.launch.rank_env import RankEnv

if TYPE_CHECKING:
    from paragan.core.dist import World
    from paragan.core.network_factory import Model
    from paragan.engine.training_loop import TrainingLoop

Log = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """A run to start or to resume.

    name: of the recipe, or of the program. out: the run folder. fresh: set a former run aside.
    place: the rank of this process, if there are several. model: networks from memory, instead of
    the config's. resume_hint: how to stop and resume, in words. has_commands: whether commands of
    the command line apply to the run. overrides: settings of the command. address: of a run in an object store, whose
    working folder is `out`. code: where the outside code of the run lies now.
    """

    config: RunConfig
    name: str
    out: Path
    fresh: bool = False
    place: RankEnv | None = None
    model: Model | None = None
    resume_hint: str = "Ctrl-C saves; the same command resumes"
    has_commands: bool = False
    overrides: tuple[str, ...] = ()
    address: str = ""
    code: CodeFolder | None = None

    def __post_init__(self) -> None:
        if any(letter < " " for letter in str(self.out)):
            raise ConfigError(f"--out {str(self.out)!r} has a line break or a control character; choose a plain name")

    @property
    def where(self) -> str:
        """Address or folder of the run, as `--out` takes it."""
        return self.address or str(self.out)

    @property
    def code_arguments(self) -> tuple[str, ...]:
        """Arguments of every command that opens the run: where its outside code lies, and whether it is trusted."""
        folder = ("--code", str(self.code.folder)) if self.code is not None else ()
        is_trusted = bool(outside_names(self.config)) and (self.code is None or self.code.trust)
        return (*folder, "--trust") if is_trusted else folder

    @property
    def arguments(self) -> tuple[str, ...]:
        """Arguments of `paragan` for the processes that a launcher starts."""
        fresh = ("--fresh",) if self.fresh else ()
        return ("train", self.name, *self.overrides, "--out", self.where, *fresh, *self.code_arguments)


def run_name(recipe: str) -> str:
    """Return the name of a run: the recipe's, a file's stem, or the folder of a recipe.yaml."""
    path = Path(recipe)
    if path.stem in ("recipe", "config") and path.suffix:
        return path.resolve().parent.name
    return path.stem


class Runner:
    """Runner of one game. An extension derives its own from it, which `make_runner` in its `runner.py` returns."""

    def start(self, request: RunRequest) -> int | None:
        """Start the processes of a run and return its exit code; None: as `runs.start` does for one game."""
        return None

    def trainer(self, request: RunRequest, world: World, log: Log, stop: Callable[[], bool]) -> TrainingLoop:
        """Return the trainer of a session at step 0. Collective."""
        from paragan import build  # imports torch, which a launcher does not need

        return build.trainer(request.config, request.out, log, stop, world=world, model=request.model)

    def open(self, config: RunConfig, folder: Path, log: Log) -> TrainingLoop:
        """Return a trainer at step 0 that only reads the run folder."""
        from paragan import build

        return build.trainer(config, folder, log, lambda: False, reading=True)

    def start_lines(self, config: RunConfig) -> Sequence[str]:
        """Return lines about the length of the run that only this kind of run has."""
        return ()


def runner_of(config: RunConfig) -> Runner:
    """Return the runner of a config: the extension's if it sets a key that one provides.

    The extension of the key `grid` is `extensions/grid`. Raises `ConfigError` if its folder was removed.
    """
    key = config.extension_key
    if key is None:
        return Runner()
    check_extension(key, key)
    runner: Runner = import_module(f"paragan.extensions.{key}.runner").make_runner()
    return runner


def check_data_files(options: object) -> None:
    """Raise `DataError` for data that do not exist, before torch is imported. options: of a data set."""
    kind: type = type(options)
    path = getattr(options, "path", "")
    if not (path or isinstance(options, FolderOptions)):
        return  # data without files: without imports
    from paragan.config.reference import meanings
    from paragan.datasets.base.label_files import check_label_table
    from paragan.datasets.base.open_reader import check_path, describe_missing

    if isinstance(options, FolderOptions) or (isinstance(options, AudioOptions) and path):
        check_path(path)
    elif path and not is_url(path) and not Path(path).exists():
        raise DataError(f"data.path: {describe_missing(path)}; pass data.path=PATH: {meanings(kind)['path']}")
    if isinstance(labels := getattr(options, "labels", None), str):
        check_label_table(labels, path)


def check_init(request: RunRequest) -> None:
    """Refuse an `init.path` that does not exist, or would be moved with the former run."""
    for key, paths in request.config.initial_paths.items():
        for source in paths:
            inside = source.resolve().is_relative_to(request.out.resolve())
            if request.fresh and inside:
                raise ConfigError(
                    f"{key}.path {source} is in the run folder, which --fresh moves; give another --out DIR"
                )
            if not source.exists() and not (request.out / "config.yaml").exists():
                raise ConfigError(f"{key}.path {source} does not exist; {advise_missing(source)}")
