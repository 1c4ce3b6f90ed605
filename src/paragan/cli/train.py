"""`paragan train`: a run in its folder; the same command again goes on."""

from __future__ import annotations

from pathlib import Path

from paragan import build
from paragan.config import RunConfig, differences, dump, load
from paragan.core.errors import CheckpointError, Interrupted
from paragan.core.interrupt import Interrupt
from paragan.engine.folder import RunFolder, environment, write_json, write_text
from paragan.engine.session import Session, score_line
from paragan.engine.trainer import Trainer
from paragan.writers.console import Console, clock_time

_MAY_CHANGE = ("train.kimg", "every.", "score.", "data.path")


def run(config: RunConfig, recipe: str, out: Path, fresh: bool, interrupt: Interrupt) -> int:
    """Train `config` in the folder `out`, from its newest checkpoint or from the start; returns the exit code."""
    console = Console()
    folder = RunFolder(out)
    trainer = build.trainer(config, out, console.say, lambda: interrupt.requested)
    resumed = _open(folder, config, trainer, fresh, console)
    evaluator = build.evaluator(config, trainer, folder.judge)
    trainer.score = evaluator.score
    session = Session(trainer, folder, console)
    console.say(_opening(recipe, trainer, folder, resumed))
    try:
        session.run()
    except BaseException as error:
        write_json(folder.path / "exit.json", {"code": 1, "step": trainer.clock.step, "reason": f"{type(error).__name__}: {error}"})
        raise
    return _close(session, recipe, fresh)


def _open(folder: RunFolder, config: RunConfig, trainer: Trainer, fresh: bool, console: Console) -> bool:
    """Lock the folder, check that it holds this run, write what describes it, and resume; whether there was anything."""
    if fresh and (aside := folder.set_aside()) is not None:
        console.say(f"--fresh: the former run is kept in {aside}")
    if folder.config.exists():
        _refuse_another_run(folder, config)
    folder.open()
    resumed = trainer.resume()
    write_text(folder.config, dump(config))
    write_json(folder.path / "environment.json", environment())
    return resumed


def _refuse_another_run(folder: RunFolder, config: RunConfig) -> None:
    before = load(str(folder.config))
    changed = [key for key in differences(before, config) if not key.startswith(_MAY_CHANGE)]
    if changed:
        raise CheckpointError(
            f"run folder {folder.path}: holds a run with other settings ({', '.join(changed[:5])}{', …' if len(changed) > 5 else ''}); "
            "give the former values, choose another folder with --out DIR, or start anew with --fresh"
        )


def _opening(recipe: str, trainer: Trainer, folder: RunFolder, resumed: bool) -> str:
    players = "  ".join(
        f"{name.upper()} {sum(p.numel() for p in player.net.parameters()):,} weights, {_format(player)}"
        for name, player in trainer.players.items()
    )
    start = f"resuming at step {trainer.clock.step}" if resumed else "starting"
    return f"{start}: {recipe} for {trainer.images / 1000:g} kimg in {folder.path} (Ctrl-C saves; the same command goes on)\n{players}"


def _format(player) -> str:  # type: ignore[no-untyped-def]
    dtype = "fp32" if player.calling.dtype is None else str(player.calling.dtype).removeprefix("torch.")
    return f"{dtype}{' channels-last' if player.calling.channels_last else ''} on {next(player.net.parameters()).device}"


def _close(session: Session, recipe: str, fresh: bool) -> int:
    trainer, path = session.trainer, session.folder.path
    code = 0 if trainer.finished else Interrupted.exit_code
    reason = "finished" if trainer.finished else "stopped by a signal; saved"
    write_json(path / "exit.json", {"code": code, "step": trainer.clock.step, "reason": reason})
    session.console.say(f"{reason}: step {trainer.clock.step}, {trainer.clock.images / 1000:g} kimg, {clock_time(session.seconds())}")
    if trainer.finished:
        session.console.say(_ending(session, recipe))
    return code


def _ending(session: Session, recipe: str) -> str:
    path = session.folder.path
    more = session.trainer.images * 2 / 1000
    return "\n".join((
        f"score   {score_line(session.last_score)}",
        f"where   {path}: samples/ pictures, metrics.jsonl the record, checkpoints/, score.json",
        f"next    ./run sample {path} --num 64",
        f"        ./run eval {path} --json",
        f"        ./run train {recipe} --out {path} train.kimg={more:g}    # go on to twice the length",
    ))  # fmt: skip
