"""`paragan train`: a run in its folder; the same command again goes on."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from paragan import build
from paragan.config import RunConfig, differences, dump, load
from paragan.core.errors import PREEMPTED, CheckpointError, ParaganError
from paragan.core.interrupt import Interrupt
from paragan.engine.folder import RunFolder, environment, write_json, write_text
from paragan.engine.session import Session, score_line
from paragan.engine.trainer import Trainer
from paragan.game.player import Player
from paragan.writers.console import Console, clock_time

_MAY_CHANGE = ("train.kimg", "every.", "score.", "data.path")


def run(config: RunConfig, recipe: str, out: Path, fresh: bool, interrupt: Interrupt) -> int:
    """Train `config` in the folder `out`, from its newest checkpoint or from the start; returns the exit code."""
    console, folder = Console(), RunFolder(out)
    trainer = build.trainer(config, out, console.say, lambda: interrupt.requested)
    if fresh and (aside := folder.set_aside()) is not None:
        console.say(f"--fresh: the former run is kept in {aside}")
    if folder.config.exists():
        _refuse_another_run(folder, config)
    with folder:
        resumed = trainer.resume()
        (folder.path / "exit.json").unlink(missing_ok=True)  # it told of the session before
        write_text(folder.config, dump(config))
        write_json(folder.path / "environment.json", environment())
        console.say(_opening(recipe, trainer, folder, resumed))
        return _run(Session(trainer, folder, console))


def _run(session: Session) -> int:
    """Train to the end or a stop, leave `exit.json`, tell what comes next."""
    trainer, path = session.trainer, session.folder.path
    try:
        session.run()
    except BaseException as error:
        code = error.exit_code if isinstance(error, ParaganError) else 1
        with suppress(OSError):  # a full disk must not hide what went wrong
            write_json(path / "exit.json", {"code": code, "step": trainer.clock.step, "reason": str(error)})
        raise
    code, reason = (0, "finished") if trainer.finished else (PREEMPTED, "stopped by a signal; saved")
    write_json(path / "exit.json", {"code": code, "step": trainer.clock.step, "reason": reason})
    session.console.say(
        f"{reason}: step {trainer.clock.step}, {trainer.clock.images / 1000:g} kimg, {clock_time(session.seconds())}"
    )
    if trainer.finished:
        session.console.say(_ending(session))
    return code


def _refuse_another_run(folder: RunFolder, config: RunConfig) -> None:
    before = load(str(folder.config))
    changed = [key for key in differences(before, config) if not key.startswith(_MAY_CHANGE)]
    if changed:
        named = ", ".join(changed[:5]) + (", …" if len(changed) > 5 else "")
        raise CheckpointError(
            f"run folder {folder.path}: holds a run with other settings ({named}); "
            "give the former values, choose another folder with --out DIR, or start anew with --fresh"
        )


def _opening(recipe: str, trainer: Trainer, folder: RunFolder, resumed: bool) -> str:
    players = "  ".join(
        f"{name.upper()} {sum(p.numel() for p in player.net.parameters()):,} weights, {_format(player)}"
        for name, player in trainer.players.items()
    )
    start = f"resuming at step {trainer.clock.step}" if resumed else "starting"
    run = f"{recipe} for {trainer.images / 1000:g} kimg in {folder.path}"
    return f"{start}: {run} (Ctrl-C saves; the same command goes on)\n{players}"


def _format(player: Player) -> str:
    dtype = "fp32" if player.calling.dtype is None else str(player.calling.dtype).removeprefix("torch.")
    return (
        f"{dtype}{' channels-last' if player.calling.channels_last else ''} on {next(player.net.parameters()).device}"
    )


def _ending(session: Session) -> str:
    path, more = session.folder.path, session.trainer.clock.images * 2 / 1000
    scored = bool(session.last_score)
    lines = [
        f"score   {score_line(session.last_score) if scored else 'off (score.extractor=none)'}",
        f"where   {path}: samples/ pictures, metrics.jsonl the record, checkpoints/{', score.json' if scored else ''}",
        f"next    ./run sample {path} --num 64",
        *([f"        ./run eval {path} --json"] if scored else []),
        f"        ./run train {session.folder.config} --out {path} train.kimg={more:g}    # go on to twice the length",
    ]
    return "\n".join(lines)
