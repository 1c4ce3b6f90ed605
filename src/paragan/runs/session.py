"""A run in its folder, requested by the command line or by a Python program.

Rank 0 decides about the folder, and writes and prints for all ranks.
"""

import hashlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial

from paragan import build
from paragan.config import RunConfig, dump, outside_names, to_tree, used_code
from paragan.core.dist import World
from paragan.core.errors import CheckpointError, ConfigError, PeerFailedError, outcome
from paragan.core.files import write_json, write_text
from paragan.core.outside_code import changed_code, code_fingerprints
from paragan.core.printable import join_some, print_line, to_printable
from paragan.core.settings_tree import flatten
from paragan.distributed.launch import exit_status
from paragan.distributed.launch.failure import resolve_failure
from paragan.distributed.launch.join import join
from paragan.distributed.launch.rank_env import RankEnv
from paragan.engine.multi_writer import MultiWriter
from paragan.engine.session import Session
from paragan.engine.training_loop import TrainingLoop
from paragan.hardware import device as devices
from paragan.hardware.deterministic import deterministic_kernels, report_missing_kernels
from paragan.hardware.executors import report_compile_errors as compiling
from paragan.runs import rank_checks
from paragan.runs.environment import environment
from paragan.runs.existing_run import change_messages, former_run, with_history, with_recorded_init
from paragan.runs.folder import STUDY, RunFolder
from paragan.runs.run_lines import changed_command, complete_line, describe_run, start_lines
from paragan.runs.run_request import Runner, RunRequest, check_init, runner_of
from paragan.writers.jsonl import RankWriter

_MAX_NAMED = 5
_NOISE = r"(?s).*FSDP2-wrapped module"  # a warning that users cannot fix


def join_world(config: RunConfig, place: RankEnv | None, stopped: Callable[[], bool] = lambda: False) -> World:
    """Return the world of this process, on its device. stopped: polled while ranks connect."""
    warnings.filterwarnings("ignore", message=_NOISE)
    device = devices.select_device(
        config.train.threads, *(() if place is None else (place.local_rank, place.local_size))
    )
    return join(place, device, config.train.timeout_s, stopped, rank_checks.needs_group(config))


@contextmanager
def open_session(
    request: RunRequest, world: World, stop: Callable[[], bool], runner: Runner | None = None
) -> Iterator[Session]:
    """Open a session at the newest checkpoint, or at step 0, and lock the folder. Collective.

    runner: that has started this process; None: that of the config.
    """
    runner = runner or runner_of(request.config)
    with deterministic_kernels(request.config.train.deterministic), _opened(request, world, stop, runner) as session:
        yield session


@contextmanager
def _opened(request: RunRequest, world: World, stop: Callable[[], bool], runner: Runner) -> Iterator[Session]:
    folder = RunFolder(request.out, None if request.place is None else request.place.lock_fd)
    log = printer(world)
    rank_checks.check_same_config(request.config, world)
    rank_checks.check_batch(request.config, world)
    request = replace(request, config=_completed_config(request, world, log))
    trainer = runner.trainer(request, world, log, stop)  # before the folder: bad settings leave nothing behind
    before = _prepare_folder(request, folder) if world.is_main else None
    with folder if world.is_main else nullcontext():
        resumed = _resume(request, folder, trainer)
        config, messages = _config_of_session(request, before, trainer, resumed, log)
        request = replace(request, config=config)
        text = dump(config, None if request.address else folder.path)  # no path into the cache of a bucket's copy
        is_complete = world.any(before == config and folder.is_finished(trainer.clock.step)) and trainer.is_finished
        if world.is_main:
            _record_start(request, folder, text, world.size, is_complete)
        about = describe_run(request, trainer)
        if is_complete:
            log(complete_line(about, request, trainer))
        else:
            for line in start_lines(about, request, trainer, resumed, runner):
                log(line)
        try:
            yield Session(
                trainer=trainer,
                folder=folder.path,
                writer=MultiWriter([]) if is_complete else _open_writers(request, world, trainer),
                run_info=about,
                world=world,
                messages=messages,
                keep_files=partial(folder.keep, text) if world.is_main else lambda: None,
                settings=flatten(to_tree(config)),
                command=partial(changed_command, request),
                is_complete=is_complete,
            )
        finally:
            trainer.release()


def check_start(request: RunRequest, num_ranks: int = 1) -> None:
    """Raise what `train` raises before the first step of a new run, in this process alone; write nothing."""
    check_init(request)
    config = request.config
    if num_ranks > 1 and config.grid is None:
        config = build.with_synchronous_scheme(config)  # a scheme with ranks for each player has none here
    config = replace(config, workers=None, devices=None)
    trainer = runner_of(config).trainer(replace(request, config=config), World(), printer(World()), lambda: False)
    if config.initial_paths and not (request.out / "config.yaml").exists():
        from paragan.build.initial_weights import load_initial_weights

        load_initial_weights(config, trainer, request.model, lambda line: None)
    trainer.release()


def _completed_config(request: RunRequest, world: World, log: Callable[[str], None]) -> RunConfig:
    """Return the config with what it leaves to `auto`. Collective."""
    if request.config.train.layout != "auto":
        return request.config
    from paragan.runs.layout import choose_layout  # a plain run does not need it

    return choose_layout(request.config, request.out, _starts_fresh(request), world, log, request.model)


def _resume(request: RunRequest, folder: RunFolder, trainer: TrainingLoop) -> bool:
    """Load the newest checkpoint; return whether there is one. Collective."""
    world = trainer.world
    world.barrier()  # rank 0 has prepared the folder
    rank_checks.check_shared_folder(request.address, request.out, world)
    resumed = trainer.resume()
    if world.is_main:
        if line := folder.missing_history(trainer.clock.step):
            print_line(line)
        if resumed:  # end what the former session had begun to write
            trainer.checkpoints.prune_before(trainer.checkpoints.path_of(trainer.clock.step))
            trainer.best.finish_replacement()
    rank_checks.check_same_state(trainer, world)
    _check_length(trainer, request.config, folder)
    return resumed


def _config_of_session(
    request: RunRequest, before: RunConfig | None, trainer: TrainingLoop, resumed: bool, log: Callable[[str], None]
) -> tuple[RunConfig, list[str]]:
    """Return the config with what former sessions and initial weights add, and messages about it. Loads the weights."""
    config = with_history(with_recorded_init(request.config, before), before, trainer.clock.step)
    messages = change_messages(config, before)
    if trainer.data_change:
        messages.append(trainer.data_change)
    for name, texts in trainer.changed_layers.items():
        if texts:
            messages.append(f"warning: layers of {name} have changed since the checkpoint: {texts}")
    if resumed and (names := changed_code(outside_names(config), used_code(request.out))):
        messages.append(f"warning: code has changed since the run used it: {join_some(names)}")
    if config.initial_paths and not resumed:
        from paragan.build.initial_weights import load_initial_weights  # few runs need it

        config, loaded = load_initial_weights(config, trainer, request.model, log)
        messages += loaded
    return config, messages


def _record_start(request: RunRequest, folder: RunFolder, config: str, num_ranks: int, is_complete: bool) -> None:
    """Write the config and the environment of a session that has something to train."""
    if request.place is not None:
        exit_status.record_owner(request.out, request.place)
    if not is_complete:
        (folder.path / "exit.json").unlink(missing_ok=True)  # of the previous session
        write_text(folder.config, config)
        code: dict[str, object] = {"code": code_fingerprints(outside_names(request.config))}
        code["config_sha256"] = hashlib.sha256(config.encode()).hexdigest()
        write_json(folder.path / "environment.json", environment(num_ranks) | code)


@contextmanager
def share_failures(world: World) -> Iterator[None]:
    """Report a failure inside to other ranks; raise another rank's failure if that caused it."""
    try:
        yield
    except BaseException as raised:
        error = resolve_failure(world, raised)
        raise error from (None if error is raised else raised)


@contextmanager
def record_failure(session: Session) -> Iterator[None]:
    """Record a failure inside and `exit.json`, inform the other ranks, re-raise."""
    try:
        with share_failures(session.world), compiling(), report_missing_kernels():
            yield
    except BaseException as error:
        code, line = outcome(error)
        reason = to_printable(line or str(error) or type(error).__name__)
        session.end(code, reason)
        if isinstance(error, PeerFailedError):
            reason = to_printable(error.reason)  # `exit.json` describes the run, not this rank
        with suppress(OSError):  # a full disk must not hide what went wrong
            _write_exit(session, code, reason)
        raise


def end_session(session: Session, code: int, reason: str) -> None:
    """End the session, finished or to be resumed: close the writers and write `exit.json`."""
    session.end(code, reason)
    _write_exit(session, code, reason)


def printer(world: World) -> Callable[[str], None]:
    """Return a function that prints a line on rank 0 and does nothing on other ranks."""
    return print_line if world.is_main else lambda text: None


def _write_exit(session: Session, code: int, reason: str) -> None:
    if session.world.is_main:
        about = {"code": code, "step": session.trainer.clock.step, "reason": reason}
        write_json(session.folder / "exit.json", about)


def _prepare_folder(request: RunRequest, folder: RunFolder) -> RunConfig | None:
    """Return the config of the run that is resumed, None for a new one. Raises as `former_run`."""
    if request.fresh and request.config.train.change_rates:
        raise ConfigError("--change resumes a run and --fresh starts one; give one of the two")
    check_init(request)
    if (folder.path / STUDY).exists() and not folder.config.exists():
        raise CheckpointError(f"{folder.path} holds a study of tune; choose another folder with --out DIR")
    if _starts_fresh(request) and (aside := folder.set_aside()) is not None:
        print_line(f"--fresh: the former run was moved to {aside}, with all files in its folder")
    if not folder.config.exists() and (others := folder.other_files()):
        named = join_some(others, _MAX_NAMED)
        print_line(
            f"warning: {folder.path} holds other files ({named}): they stay, and --fresh would move them with the run"
        )
    if folder.has_edited_config():
        print_line(f"warning: {folder.config} was edited since the run's last session; its settings hold from here on")
    return former_run(folder, request.config, print_line, request.code)


def _starts_fresh(request: RunRequest) -> bool:
    """Return whether `--fresh` sets a former run aside: not on a launcher's restart of this run."""
    return request.fresh and not (request.place is not None and exit_status.is_owned(request.out, request.place))


def _check_length(trainer: TrainingLoop, config: RunConfig, folder: RunFolder) -> None:
    """Raise `CheckpointError` if more is trained than `train.kimg`, which would be recorded."""
    if trainer.clock.images >= trainer.images + config.images_per_report:
        done = trainer.clock.images / 1000
        raise CheckpointError(
            f"run folder {folder.path} holds {done:g} kimg of training, more than "
            f"train.kimg={config.train.kimg:g}; pass train.kimg={done:g} or more, or start anew "
            "with --fresh"
        )


def _open_writers(request: RunRequest, world: World, trainer: TrainingLoop) -> MultiWriter:
    if world.is_main:
        return build.writers(request.config, request.out, trainer.saved_at)
    common = {"rank": world.rank, "attempt": request.place.attempt if request.place else 0}
    events = exit_status.ranks_folder(request.out) / f"rank-{world.rank}.jsonl"
    return MultiWriter([("events", RankWriter(events, common, world.sent))], is_main=False)
