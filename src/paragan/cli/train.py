"""`paragan train`: a run in its folder; the same command again goes on."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paragan import build
from paragan.cli import ranks
from paragan.config import RunConfig, changes, differences, dump, load, outside_names
from paragan.core.command import me
from paragan.core.dist import World
from paragan.core.errors import PREEMPTED, CheckpointError, ConfigError, FollowedError, outcome
from paragan.core.files import write_text
from paragan.core.interrupt import Interrupt
from paragan.core.printable import printable
from paragan.engine.desk import Desk
from paragan.engine.folder import RunFolder, environment, write_json
from paragan.engine.session import Session, players
from paragan.engine.trainer import Trainer
from paragan.hardware import device as devices
from paragan.launch import ends
from paragan.launch.failure import explained
from paragan.launch.join import join, leave
from paragan.launch.place import Place
from paragan.writers.console import clock_time, score_line
from paragan.writers.jsonl import RankWriter

_MAY_CHANGE = (
    *("train.kimg", "train.timeout_s", "every.", "score.", "writers", "data.path", "devices"),
    *(f"{side}.{key}" for side in "gd" for key in ("strategy", "recompute", "offload")),
)
_NOISE = r"(?s).*(Grad strides do not match bucket view|FSDP2-wrapped module)"  # neither is the user's to mend


@dataclass(frozen=True)
class _Asked:
    """What the command line asked for. place: of this process among the ranks, if there are several."""

    config: RunConfig
    recipe: str
    out: Path
    fresh: bool
    interrupt: Interrupt
    place: Place | None

    def stop(self) -> bool:
        return bool(self.why())

    def why(self) -> str:
        """Who asks to stop; empty: nobody."""
        if self.interrupt.requested:
            return "stopped by a signal"
        return "the launcher is gone" if self.place is not None and self.place.orphaned() else ""


def run(
    config: RunConfig, recipe: str, out: Path, fresh: bool, interrupt: Interrupt, place: Place | None = None
) -> int:
    """Train `config` in the folder `out`, from its newest checkpoint or from the start; returns the exit code.

    place: of this process among several. A rank that another one took down says nothing.
    """
    warnings.filterwarnings("ignore", message=_NOISE)
    asked = _Asked(config, recipe, out, fresh, interrupt, place)
    if place is None:
        return _alone(asked)
    world, code, reason, error = World(), 1, "", None
    try:
        ends.forget(out, place)
        world = _join(asked)
        code, reason = _train(asked, world)
        leave(world)
        return code
    except BaseException as raised:
        error = explained(world, raised)
        code, line = outcome(error)
        reason = line or f"{type(error).__name__}: {error}"[:500]
        if isinstance(error, FollowedError):
            return code
        raise error from (None if error is raised else raised)
    finally:
        with suppress(OSError):  # a full disk must not hide what went wrong
            ends.write(out, place, error, code, reason)


def _alone(asked: _Asked) -> int:
    world = _join(asked)
    try:
        return _train(asked, world)[0]
    finally:
        leave(world)


def _join(asked: _Asked) -> World:
    place, train = asked.place, asked.config.train
    device = devices.pick(train.threads, *(() if place is None else (place.local_rank, place.local_size)))
    return join(place, device, train.timeout_s, lambda: asked.interrupt.requested, ranks.needs_group(asked.config))


def _train(asked: _Asked, world: World) -> tuple[int, str]:
    """The exit code and the reason in words. Rank 0 decides about the folder, and writes and speaks for all."""
    config, folder, say = asked.config, RunFolder(asked.out), _say if world.leads else _keep_silent
    ranks.refuse_different(config, world)
    ranks.refuse_thin(config, world)
    trainer = build.trainer(config, asked.out, say, lambda: world.any(asked.stop()), world=world)
    if world.leads:
        _make_room(asked, folder)
    with folder if world.leads else nullcontext():
        world.barrier()  # the folder is what it will be
        resumed = trainer.resume()
        ranks.refuse_apart(trainer, world)
        _refuse_less(trainer, config, folder)
        if world.leads:
            (folder.path / "exit.json").unlink(missing_ok=True)  # it told of the session before
            write_text(folder.config, dump(config))
            if asked.place is not None:
                ends.claim(asked.out, asked.place)
            write_json(folder.path / "environment.json", environment(world.size))
        about = _about(asked.recipe, trainer, config, folder) | {"hosts": ranks.num_hosts(world)}
        say(_opening(about, config, trainer, folder, resumed))
        return _run(Session(trainer, folder.path, _desk(asked, world, trainer), about, world), asked, say)


def _make_room(asked: _Asked, folder: RunFolder) -> None:
    """`--fresh`, which a restarted attempt must not take for another one; a run of other settings is refused."""
    again = asked.place is not None and ends.claimed(asked.out, asked.place)
    if asked.fresh and not again and (aside := folder.set_aside()) is not None:
        _say(f"--fresh: the former run is kept in {aside}")
    if folder.config.exists():
        _refuse_another_run(folder, asked.config)


def _desk(asked: _Asked, world: World, trainer: Trainer) -> Desk:
    if world.leads:
        return build.desk(asked.config, asked.out, trainer.clock.step)
    always = {"rank": world.rank, "attempt": asked.place.attempt if asked.place else 0}
    events = ends.ranks(asked.out) / f"rank-{world.rank}.jsonl"
    return Desk([("events", RankWriter(events, always, world.sent))])


def _run(session: Session, asked: _Asked, say: Callable[[str], None]) -> tuple[int, str]:
    """Train to the end or a stop, leave `exit.json`, tell what comes next."""
    trainer = session.trainer
    try:
        session.run()
    except BaseException as raised:
        error = explained(session.world, raised)
        code, line = outcome(error)
        reason = printable(line or str(error) or type(error).__name__)
        session.end(code, reason)
        if isinstance(error, FollowedError):
            reason = printable(error.reason)  # `exit.json` is the run's
        with suppress(OSError):  # a full disk must not hide what went wrong
            _leave_word(session, code, reason)
        raise error from (None if error is raised else raised)
    why = asked.why() or "another rank was stopped"
    code, reason = (0, "finished") if trainer.finished else (PREEMPTED, f"{why}; saved")
    session.end(code, reason)
    _leave_word(session, code, reason)
    say(f"{reason}: step {trainer.clock.step}, {trainer.clock.images / 1000:g} kimg, {clock_time(session.seconds())}")
    if trainer.finished:
        say(_ending(session))
    return code, reason


def _leave_word(session: Session, code: int, reason: str) -> None:
    if session.world.leads:
        write_json(session.folder / "exit.json", {"code": code, "step": session.trainer.clock.step, "reason": reason})


def _refuse_another_run(folder: RunFolder, config: RunConfig) -> None:
    try:
        before = load(str(folder.config), outside=outside_names(config))
    except ConfigError as error:
        raise CheckpointError(
            f"run folder {folder.path}: its config cannot be read ({str(error).splitlines()[0]}); "
            "choose another folder with --out DIR, or start anew with --fresh"
        ) from None
    changed = [key for key in differences(before, config) if not key.startswith(_MAY_CHANGE)]
    if changed:
        named = ", ".join(changed[:5]) + (", …" if len(changed) > 5 else "")
        raise CheckpointError(
            f"run folder {folder.path}: holds a run with other settings ({named}); "
            "give the former values, choose another folder with --out DIR, or start anew with --fresh"
        )


def _refuse_less(trainer: Trainer, config: RunConfig, folder: RunFolder) -> None:
    """A run is not shortened below what it has: its config would no longer tell how it came about."""
    step = config.train.batch * config.d.updates_per_step
    if trainer.clock.images >= trainer.images + step:
        done = trainer.clock.images / 1000
        raise CheckpointError(
            f"run folder {folder.path}: found {done:g} kimg done, expected at most train.kimg={config.train.kimg:g}; "
            f"give train.kimg={done:g} or more, or start anew with --fresh"
        )


def _opening(about: Mapping[str, Any], config: RunConfig, trainer: Trainer, folder: RunFolder, resumed: bool) -> str:
    start = f"resuming at step {trainer.clock.step}" if resumed else "starting"
    run = f"{about['recipe']} for {trainer.images / 1000:g} kimg in {folder.path}"
    source = trainer.batches.source
    classes = f" of {len(source.class_names)} classes" if source.class_names else ""
    size = "x".join(map(str, source.shape[1:]))
    colour = {1: "grey ", 3: "colour "}.get(source.shape[0], "")
    seated = players(trainer)
    lines = [
        f"{start}: {run} (Ctrl-C saves; the same command goes on)",
        f"data      {len(source):,} {colour}images{classes}, {size}",
        *(f"{name.upper()}         {_player(values)}" for name, values in sorted(seated.items(), reverse=True)),
        *([ranks.line(trainer, seated, config.train.batch, about["hosts"])] if trainer.world.size > 1 else []),
    ]
    return "\n".join(lines)


def _player(values: dict[str, Any]) -> str:
    layout = " channels-last" if values["channels_last"] else ""
    return f"{values['weights']:,} weights, {values['precision']}{layout} on {values['device']}"


def _about(recipe: str, trainer: Trainer, config: RunConfig, folder: RunFolder) -> dict[str, Any]:
    """What the record's first line tells of how the run was asked for, and of what can be done with it."""
    path, trust = shlex.quote(str(folder.path)), " --trust" if outside_names(config) else ""
    held_out = trainer.pictures.held_out
    num = 64 if held_out is None else min(64, len(held_out))
    commands = {
        "go on": f"{me()} train {path}/config.yaml --out {path}",
        "sample": f"{me()} sample {path} --num {num}{trust}",
        "export": f"{me()} export {path}{trust}",
        "score": f"{me()} eval {path} --json{trust}",
    }
    return {"recipe": recipe, "data": config.data.name, "changed": changes(recipe, config), "commands": commands}


def _ending(session: Session) -> str:
    path, commands = session.folder, session.about["commands"]
    scored = bool(session.last_score)
    more = session.trainer.clock.images * 2 / 1000
    shown = [commands["sample"], commands["export"], f"{commands['go on']} train.kimg={more:g}    # twice the length"]
    lines = [
        f"score     {score_line(session.last_score) if scored else 'off (score.extractor=none)'}",
        f"where     {path}: report.html, samples/, metrics.jsonl the record, checkpoints/",
        *(f"{'next' if i == 0 else '':<10}{command}" for i, command in enumerate(shown)),
    ]
    return "\n".join(lines)


def _say(text: str) -> None:
    print(printable(text), flush=True)


def _keep_silent(text: str) -> None:
    """What other ranks than the first say."""
