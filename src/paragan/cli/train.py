"""`paragan train`: a run in its folder; the same command again goes on."""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

from paragan import build
from paragan.config import RunConfig, changes, differences, dump, load, outside_names
from paragan.core.command import me
from paragan.core.errors import PREEMPTED, CheckpointError, ConfigError, outcome
from paragan.core.files import write_text
from paragan.core.interrupt import Interrupt
from paragan.core.printable import printable
from paragan.engine.folder import RunFolder, environment, write_json
from paragan.engine.session import Session, told
from paragan.engine.trainer import Trainer
from paragan.writers.console import clock_time, score_line

_MAY_CHANGE = ("train.kimg", "every.", "score.", "writers", "data.path")


def run(config: RunConfig, recipe: str, out: Path, fresh: bool, interrupt: Interrupt) -> int:
    """Train `config` in the folder `out`, from its newest checkpoint or from the start; returns the exit code."""
    folder = RunFolder(out)
    trainer = build.trainer(config, out, _say, lambda: interrupt.requested)
    if fresh and (aside := folder.set_aside()) is not None:
        _say(f"--fresh: the former run is kept in {aside}")
    if folder.config.exists():
        _refuse_another_run(folder, config)
    with folder:
        resumed = trainer.resume()
        _refuse_less(trainer, config, folder)
        (folder.path / "exit.json").unlink(missing_ok=True)  # it told of the session before
        write_text(folder.config, dump(config))
        write_json(folder.path / "environment.json", environment())
        _say(_opening(recipe, trainer, folder, resumed))
        desk = build.desk(config, folder.path, trainer.clock.step)
        return _run(Session(trainer, folder.path, desk, _about(recipe, config, folder)))


def _run(session: Session) -> int:
    """Train to the end or a stop, leave `exit.json`, tell what comes next."""
    trainer, path = session.trainer, session.folder
    try:
        session.run()
    except BaseException as error:
        code, line = outcome(error)
        reason = printable(line or str(error) or type(error).__name__)
        session.end(code, reason)
        with suppress(OSError):  # a full disk must not hide what went wrong
            write_json(path / "exit.json", {"code": code, "step": trainer.clock.step, "reason": reason})
        raise
    code, reason = (0, "finished") if trainer.finished else (PREEMPTED, "stopped by a signal; saved")
    session.end(code, reason)
    write_json(path / "exit.json", {"code": code, "step": trainer.clock.step, "reason": reason})
    _say(f"{reason}: step {trainer.clock.step}, {trainer.clock.images / 1000:g} kimg, {clock_time(session.seconds())}")
    if trainer.finished:
        _say(_ending(session))
    return code


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


def _opening(recipe: str, trainer: Trainer, folder: RunFolder, resumed: bool) -> str:
    start = f"resuming at step {trainer.clock.step}" if resumed else "starting"
    run = f"{recipe} for {trainer.images / 1000:g} kimg in {folder.path}"
    source = trainer.batches.source
    classes = f" of {len(source.class_names)} classes" if source.class_names else ""
    size = "x".join(map(str, source.shape[1:]))
    colour = {1: "grey ", 3: "colour "}.get(source.shape[0], "")
    lines = [
        f"{start}: {run} (Ctrl-C saves; the same command goes on)",
        f"data      {len(source):,} {colour}images{classes}, {size}",
        *(f"{name.upper()}         {_player(told(player))}" for name, player in trainer.players.items()),
    ]
    return "\n".join(lines)


def _player(values: dict[str, Any]) -> str:
    layout = " channels-last" if values["channels_last"] else ""
    return f"{values['weights']:,} weights, {values['precision']}{layout} on {values['device']}"


def _about(recipe: str, config: RunConfig, folder: RunFolder) -> dict[str, Any]:
    """What the record's first line tells of how the run was asked for, and of what can be done with it."""
    path, trust = shlex.quote(str(folder.path)), " --trust" if outside_names(config) else ""
    commands = {
        "go on": f"{me()} train {path}/config.yaml --out {path}",
        "sample": f"{me()} sample {path} --num 64{trust}",
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
