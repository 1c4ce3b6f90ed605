"""Training of one run in its folder, in this process. Repeating the command resumes the run."""

from __future__ import annotations

import shlex
from contextlib import suppress
from functools import partial
from pathlib import Path

from paragan.config import RunConfig, outside_names
from paragan.core import registry
from paragan.core.command import program_command
from paragan.core.dist import World
from paragan.core.errors import PREEMPTED, PeerFailedError, outcome
from paragan.core.interrupt import Interrupt
from paragan.distributed.launch import exit_status
from paragan.distributed.launch.external_workers import ExternalWorkers
from paragan.distributed.launch.failure import resolve_failure
from paragan.distributed.launch.join import destroy_groups
from paragan.distributed.launch.rank_env import RankEnv
from paragan.engine.session import Session
from paragan.engine.trainer import Trainer
from paragan.runs.session import RunRequest, end_session, join_world, open_session, printer, record_failure
from paragan.writers.console import clock_time, score_line


def train_run(
    config: RunConfig,
    recipe: str,
    out: Path,
    fresh: bool,
    interrupt: Interrupt,
    place: RankEnv | None = None,
    company: ExternalWorkers | None = None,
) -> int:
    """Train `config` in the folder `out`, from its newest checkpoint or from the start; returns the exit code.

    place: of this process among several. A rank that failed because of another rank prints nothing. company: processes
    that wait to be the workers of a grid.
    """
    request = RunRequest(config, recipe, out, fresh, place, commands=partial(_commands, config, out), company=company)
    if place is None:
        return _train_alone(request, interrupt)
    world = World()
    error: BaseException | None = None
    code = 1
    reason = ""
    try:
        exit_status.remove_stale(out, place)
        world = join_world(config, place, lambda: interrupt.requested)
        code, reason = _train(request, world, interrupt)
        destroy_groups(world)
        return code
    except BaseException as raised:
        error = resolve_failure(world, raised)
        code, line = outcome(error)
        reason = line or f"{type(error).__name__}: {error}"[:500]
        if isinstance(error, PeerFailedError):
            return code
        raise error from (None if error is raised else raised)
    finally:
        with suppress(OSError):  # a full disk must not hide the error
            exit_status.write(out, place, error, code, reason)


def _train_alone(request: RunRequest, interrupt: Interrupt) -> int:
    world = join_world(request.config, None)
    try:
        return _train(request, world, interrupt)[0]
    finally:
        destroy_groups(world)


def _train(request: RunRequest, world: World, interrupt: Interrupt) -> tuple[int, str]:
    """Train to the end or a stop, write `exit.json` and print the next commands; the exit code and its reason."""

    def stop_reason() -> str:
        """Why this process must stop; empty where it need not."""
        if interrupt.requested:
            return "stopped by a signal"
        orphaned = request.place is not None and request.place.is_orphaned()
        return "the launcher has exited" if orphaned else ""

    with open_session(request, world, lambda: world.any(bool(stop_reason()))) as session:
        with record_failure(session):
            session.run()
        if session.is_complete:
            return 0, "finished"
        trainer = session.trainer
        say = printer(world)
        stopped = f"{stop_reason() or 'another rank was stopped'}; saved"
        code, reason = (0, "finished") if trainer.is_complete else (PREEMPTED, stopped)
        end_session(session, code, reason)
        done = f"step {trainer.clock.step}, {trainer.clock.images / 1000:g} kimg, {clock_time(session.seconds())}"
        say(f"{reason}: {done}")
        if trainer.is_complete:
            say(_summary(session))
        return code, reason


def _commands(config: RunConfig, out: Path, trainer: Trainer) -> dict[str, str]:
    """Commands for the run, by name."""
    path = shlex.quote(str(out))
    trust = " --trust" if outside_names(config) else ""
    run = f"./{path}" if str(out) in registry.names("recipes") else path  # recipes take precedence over folders
    held_out = trainer.fixed_samples.held_out
    num = 64 if held_out is None else min(64, len(held_out))
    return {
        "go on": f"{program_command()} train {run}{trust}",
        "sample": f"{program_command()} sample {path} --num {num}{trust}",
        "export": f"{program_command()} export {path}{trust}",
        "score": f"{program_command()} eval {path} --json{trust}",
    }


def _summary(session: Session) -> str:
    """Final score, files of the run and the next commands."""
    path = session.folder
    commands = session.run_info["commands"]
    scored = bool(session.last_score)
    more = session.trainer.images * 2 / 1000
    longer = f"{commands['go on']} train.kimg={more:g}    # twice the length"
    lines = [
        f"score     {score_line(session.last_score) if scored else 'off (evaluation.features=null)'}",
        f"where     {path}: report.html, samples/, metrics.jsonl, checkpoints/",
        f"next      {commands['sample']}",
        f"          {commands['export']}",
        f"          {longer}",
    ]
    return "\n".join(lines)
