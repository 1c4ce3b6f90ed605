"""A run in its folder, whoever asks for it: the command line, or a program of one's own.

Rank 0 decides about the folder, and writes and speaks for all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paragan import build
from paragan.build import evaluation, grid, workers
from paragan.build.initial_weights import initialised
from paragan.config import RunConfig, changes, differences, dump
from paragan.core.command import program_command
from paragan.core.dist import World
from paragan.core.errors import CheckpointError, ConfigError, PeerFailedError, outcome
from paragan.core.files import write_text
from paragan.core.network_factory import Model
from paragan.core.printable import to_printable
from paragan.core.protocols import Source, paired
from paragan.core.types import Side
from paragan.distributed.launch import exit_status
from paragan.distributed.launch.external_workers import ExternalWorkers
from paragan.distributed.launch.failure import resolve_failure
from paragan.distributed.launch.join import join
from paragan.distributed.launch.rank_env import RankEnv
from paragan.engine.multi_writer import MultiWriter
from paragan.engine.session import Session, describe_players
from paragan.engine.trainer import Trainer
from paragan.evaluation.judge import JUDGE
from paragan.evaluation.scorer import describe_extractor
from paragan.game.label_use import IGNORED
from paragan.hardware import device as devices
from paragan.hardware.executors import report_compile_errors as compiling
from paragan.runs import choose_executor, rank_checks
from paragan.runs.existing_run import former_run, news, recorded, with_recorded_init
from paragan.runs.folder import RunFolder, environment, write_json
from paragan.writers.jsonl import RankWriter

_COMPILED = ("compile", "graphs")
_NOISE = r"(?s).*(Grad strides do not match bucket view|FSDP2-wrapped module)"  # neither is the user's to mend


@dataclass(frozen=True)
class RunRequest:
    """What somebody asked for. name: of the recipe, or of the program. out: the run folder.

    fresh: a former run there is kept aside. place: of this process among the ranks, if there are several. model:
    networks from memory, instead of those that the config names. goes_on: how one goes on, in words. commands: what can
    be done with the run, by name, for the record. company: processes that wait to be the workers of a grid.
    """

    config: RunConfig
    name: str
    out: Path
    fresh: bool = False
    place: RankEnv | None = None
    model: Model | None = None
    goes_on: str = "Ctrl-C saves; the same command goes on"
    commands: Callable[[Trainer], Mapping[str, str]] = lambda trainer: {}
    company: ExternalWorkers | None = None


def join_world(config: RunConfig, place: RankEnv | None, stopped: Callable[[], bool] = lambda: False) -> World:
    """The world of this process, on its device. stopped: looked at while the other ranks are waited for."""
    warnings.filterwarnings("ignore", message=_NOISE)
    device = devices.select_device(
        config.train.threads, *(() if place is None else (place.local_rank, place.local_size))
    )
    return join(place, device, config.train.timeout_s, stopped, rank_checks.needs_group(config))


@contextmanager
def open_session(asked: RunRequest, world: World, stop: Callable[[], bool]) -> Iterator[Session]:
    """A session that stands at the newest checkpoint, or at the start; inside, the folder is locked."""
    folder = RunFolder(asked.out, None if asked.place is None else asked.place.lock_fd)
    say = printer(world)
    rank_checks.refuse_different(asked.config, world)
    rank_checks.refuse_thin(asked.config, world)
    config = choose_executor.choose_executor(asked.config, asked.out, _sets_aside(asked), world, say, asked.model)
    asked = replace(asked, config=config)
    trainer = _trainer(asked, world, stop)
    before = _make_room(asked, folder) if world.is_main else None
    with folder if world.is_main else nullcontext():
        world.barrier()  # the folder is what it will be
        resumed = trainer.resume()
        if resumed and world.is_main:
            trainer.checkpoints.prune_before(trainer.checkpoints.path_of(trainer.clock.step))
            trainer.best.finish_replacement()
        rank_checks.refuse_apart(trainer, world)
        _refuse_less(trainer, config, folder)
        config = recorded(with_recorded_init(config, before), before, trainer.clock.step)
        events = news(config, before)
        if config.init is not None and not resumed:
            config, taken = initialised(config, trainer, asked.model, say)
            events.append(f"init from {taken}")
        asked = replace(asked, config=config)
        is_complete = _is_complete(trainer, folder, config, before, world)
        if world.is_main and asked.place is not None:
            exit_status.record_owner(asked.out, asked.place)
        if world.is_main and not is_complete:
            (folder.path / "exit.json").unlink(missing_ok=True)  # it told of the session before
            write_text(folder.config, dump(config))
            write_json(folder.path / "environment.json", environment(world.size))
        about = _about(asked, trainer) | {"hosts": rank_checks.num_hosts(world)}
        say(_complete(about, asked, trainer) if is_complete else _opening(about, asked, trainer, resumed))
        desk = MultiWriter([]) if is_complete else _desk(asked, world, trainer)
        try:
            yield Session(trainer, folder.path, desk, about, world, events, is_complete=is_complete)
        finally:
            trainer.release_workers()


def _trainer(asked: RunRequest, world: World, stop: Callable[[], bool]) -> Trainer:
    if asked.config.grid is None:
        return build.trainer(asked.config, asked.out, printer(world), stop, world=world, model=asked.model)
    if world.size > 1:
        raise ConfigError(f"devices: found {world.size} for a grid, expected 1: its cells are shared out over workers")
    if asked.config.workers is not None:
        return workers.evolution(asked.config, asked.out, printer(world), stop, asked.company)
    return grid.evolution(asked.config, asked.out, printer(world), stop)


@contextmanager
def share_failures(world: World) -> Iterator[None]:
    """What fails inside is told to the other ranks; what failed because of one of them is told as such."""
    try:
        yield
    except BaseException as raised:
        error = resolve_failure(world, raised)
        raise error from (None if error is raised else raised)


@contextmanager
def record_failure(session: Session) -> Iterator[None]:
    """What fails inside ends the run: the record, the other ranks and `exit.json` hear of it before it is raised on."""
    try:
        with share_failures(session.world), compiling():
            yield
    except BaseException as error:
        code, line = outcome(error)
        reason = to_printable(line or str(error) or type(error).__name__)
        session.end(code, reason)
        if isinstance(error, PeerFailedError):
            reason = to_printable(error.reason)  # `exit.json` is the run's
        with suppress(OSError):  # a full disk must not hide what went wrong
            _leave_word(session, code, reason)
        raise


def end_session(session: Session, code: int, reason: str) -> None:
    """The run is over, or waits to go on: the writers are closed, and `exit.json` tells how."""
    session.end(code, reason)
    _leave_word(session, code, reason)


def printer(world: World) -> Callable[[str], None]:
    """Prints a line on rank 0; other ranks keep silent."""
    return _say if world.is_main else _keep_silent


def _say(text: str) -> None:
    print(to_printable(text), flush=True)


def _keep_silent(text: str) -> None:
    """What other ranks than the first say."""


def _leave_word(session: Session, code: int, reason: str) -> None:
    if session.world.is_main:
        write_json(session.folder / "exit.json", {"code": code, "step": session.trainer.clock.step, "reason": reason})


def _make_room(asked: RunRequest, folder: RunFolder) -> RunConfig | None:
    """The config of the run that is resumed. A run of other settings is refused."""
    if asked.fresh and asked.config.train.change_rates:
        raise ConfigError("--change resumes a run and --fresh starts one; give one of the two")
    _refuse_missing_init(asked)
    if _sets_aside(asked) and (aside := folder.set_aside()) is not None:
        _say(f"--fresh: the former run is kept in {aside}")
    return former_run(folder, asked.config, _say)


def _refuse_missing_init(asked: RunRequest) -> None:
    """Before a former run is moved."""
    if (init := asked.config.init) is None:
        return
    source = Path(init.path)
    inside = source.resolve().is_relative_to(asked.out.resolve())
    if asked.fresh and inside:
        raise ConfigError(f"init.path {source} lies in the run folder that --fresh moves; give another --out DIR")
    if not source.exists() and not (asked.out / "config.yaml").exists():
        raise ConfigError(
            f"init.path {source} does not exist; give a run folder, or a file of `{program_command()} export`"
        )


def _sets_aside(asked: RunRequest) -> bool:
    """`--fresh`, which a restarted attempt must not take for another one."""
    return asked.fresh and not (asked.place is not None and exit_status.is_owned(asked.out, asked.place))


def _refuse_less(trainer: Trainer, config: RunConfig, folder: RunFolder) -> None:
    """A run is not shortened below what it has: its config would no longer tell how it came about."""
    step = config.train.batch * config.d.updates_per_step
    if trainer.clock.images >= trainer.images + step:
        done = trainer.clock.images / 1000
        raise CheckpointError(
            f"run folder {folder.path}: found {done:g} kimg done, expected at most train.kimg={config.train.kimg:g}; "
            f"give train.kimg={done:g} or more, or start anew with --fresh"
        )


def _is_complete(
    trainer: Trainer, folder: RunFolder, config: RunConfig, before: RunConfig | None, world: World
) -> bool:
    """Whether the folder holds this run to its end. All ranks must call it."""
    is_same = before is not None and not differences(before, config)
    return world.any(is_same and folder.finished_at(trainer.clock.step)) and trainer.is_finished


def _desk(asked: RunRequest, world: World, trainer: Trainer) -> MultiWriter:
    if world.is_main:
        return build.writers(asked.config, asked.out, trainer.clock.step)
    always = {"rank": world.rank, "attempt": asked.place.attempt if asked.place else 0}
    events = exit_status.ranks_folder(asked.out) / f"rank-{world.rank}.jsonl"
    return MultiWriter([("events", RankWriter(events, always, world.sent))])


def _about(asked: RunRequest, trainer: Trainer) -> dict[str, Any]:
    """What the record's first line tells of how the run was asked for, and of what can be done with it."""
    changed, commands = changes(asked.name, asked.config), dict(asked.commands(trainer))
    return {"recipe": asked.name, "data": asked.config.data.name, "changed": changed, "commands": commands}


def _complete(about: Mapping[str, Any], asked: RunRequest, trainer: Trainer) -> str:
    kimg = f"train.kimg={2 * asked.config.train.kimg:g}"
    longer = f"{about['commands']['go on']} {kimg}" if about["commands"] else f"the same program with {kimg}"
    return f"finished already at step {trainer.clock.step}: {asked.out}; longer: {longer}"


def _opening(about: Mapping[str, Any], asked: RunRequest, trainer: Trainer, resumed: bool) -> str:
    start = f"resuming at step {trainer.clock.step}" if resumed else "starting"
    run = f"{asked.name} for {trainer.images / 1000:g} kimg in {asked.out}"
    source = trainer.batches.source
    classes = f" of {len(source.class_names)} classes" if source.class_names else ""
    size = "x".join(map(str, source.shape[1:]))
    colour = {1: "grey ", 3: "colour "}.get(source.shape[0], "")
    seated, batch = describe_players(trainer), asked.config.train.batch
    lines = [
        f"{start}: {run} ({asked.goes_on})",
        f"data      {len(source):,} {colour}images{classes}, {size}",
        *([_repeating(batch, len(source))] if batch > len(source) else []),
        *(f"{name.upper()}         {_player(values)}" for name, values in sorted(seated.items(), reverse=True)),
        *map(_untaught, trainer.gan.missing_label_penalties.items()),
        *([] if trainer.prior.uses_labels else [IGNORED]),
        *_scored(asked.config, source),
        *([rank_checks.line(trainer, seated, batch, about["hosts"])] if trainer.world.size > 1 else []),
        *(
            ["executor  compiled: the first steps take a minute or two"]
            if asked.config.train.executor in _COMPILED
            else []
        ),
    ]
    return "\n".join(lines)


def _repeating(batch: int, images: int) -> str:
    return f"warning: train.batch={batch} is larger than the data set ({images:,} images): each batch repeats images"


def _scored(config: RunConfig, source: Source) -> list[str]:
    """Which extractor scores the run, where one does. A judge is announced when it is trained."""
    if config.score.extractor == "none" or paired(source) is not None:
        return []
    options = evaluation.options(config, source)
    return [] if options.extractor == JUDGE else [f"score     {describe_extractor(options)}"]


def _untaught(found: tuple[Side, tuple[str, ...]]) -> str:
    side, names = found
    added = " or ".join(f"{{name: {name}, side: {side.value}}}" for name in names)
    return f"labels    mean nothing to {side.value.upper()}: D's head is for a penalty that it has not; add {added}"


def _player(values: dict[str, Any]) -> str:
    layout = " channels-last" if values["channels_last"] else ""
    return f"{values['weights']:,} weights, {values['precision']}{layout} on {values['device']}"
