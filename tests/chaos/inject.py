"""Injection of faults into the processes of a run, at the entry of a phase.

`install` patches the package in this process, for it and for all that are forked from it; without
`PLAN` in the environment nothing happens. A fault is claimed by the file that it leaves in the
folder of `PLAN`, so that it happens once, whichever attempt reaches it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from random import Random
from typing import Any

from tests.chaos.faults import EARLY, SEED, Fault
from tests.chaos.network import change_wire

PLAN = "CHAOS_PLAN"  # a folder: plan.json, steps, and a file for each fault that has happened
_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}
_DAY_S = 86_400.0
_WIRE: dict[str, dict[str, float]] = {
    "delay": {"seconds": 1.0, "delay_s": 0.05},
    "loss": {"seconds": 1.0, "loss": 0.2},
    "cut": {"seconds": 1.0, "loss": 1.0},
    "long cut": {"seconds": 3600.0, "loss": 1.0},
}
_step = 0  # steps that this process has done or restored


class InjectedError(RuntimeError):
    """What a decoder raises that meets a defect of its own."""


def wire_of(run: Path) -> Path:
    """Return the pipe that changes the wire between the hosts of a run."""
    return run.parent / "wire"


def role() -> str:
    """Return the name of this process in faults."""
    if "--device" in sys.argv and "worker" in sys.argv:
        return f"worker{sys.argv[sys.argv.index('--device') + 1]}"
    return f"rank{os.environ['RANK']}" if "RANK" in os.environ else "main"


def enter(phase: str, step: int | None = None) -> None:
    """Do what the plan has for this process in this phase."""
    folder = os.environ.get(PLAN)
    if folder is None:
        return
    here = role()
    for values in json.loads((Path(folder) / "plan.json").read_text()):
        fault = Fault(**values)
        if (fault.role, fault.phase) != (here, phase):
            continue
        is_behind = phase in EARLY or here.startswith("worker")
        done = _progress(Path(folder)) if is_behind else (_step if step is None else step)
        if done >= fault.step and _claim(Path(folder), fault):
            _act(fault, Path(folder))


def _progress(folder: Path) -> int:
    """Return the steps that the run has done at most, over all attempts."""
    path = folder / "steps"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return max((int(line.split()[1]) for line in lines), default=0)


def _claim(folder: Path, fault: Fault) -> bool:
    try:
        handle = os.open(folder / f"fault-{fault.number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return False
    os.write(handle, f"{time.monotonic()}\n".encode())
    os.close(handle)
    return True


def _act(fault: Fault, folder: Path) -> None:
    how = fault.kind.rpartition(" ")[2]
    run = Path((folder / "run").read_text())
    if fault.kind in _WIRE:
        change_wire(wire_of(run), **_WIRE[fault.kind])
    elif how in _SIGNALS:
        os.kill(os.getppid() if fault.kind.startswith("launcher") else os.getpid(), _SIGNALS[how])
    elif how == "full":
        _fill(run.parent / "filler")
    elif how == "read-only":
        for words in (["--bind"], ["-o", "remount,bind,ro"]):
            subprocess.run(["mount", *words, run / "checkpoints", run / "checkpoints"], check=True, timeout=30)
    elif how == "flip":
        _flip_bit(run, fault.number)
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "clock":
        now, jump = time.time, (-_DAY_S, _DAY_S)[fault.number % 2]
        time.time = lambda: now() + jump
    elif how == "decode":
        raise InjectedError(f"injected into {fault.role}")
    else:
        raise AssertionError(fault)


def _fill(path: Path) -> None:
    with open(path, "ab", buffering=0) as file:
        try:
            while file.write(bytes(1 << 16)):
                pass
        except OSError:
            return


def _flip_bit(run: Path, number: int) -> None:
    """Flip a bit of one file of the newest checkpoint: of each in turn, by the number of the fault."""
    newest = max((run / "checkpoints").glob("step-*"))
    files = sorted(newest.iterdir())
    path = files[number % len(files)]
    data = bytearray(path.read_bytes())
    bit = Random(f"{SEED} {number}").randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def _before(owner: Any, name: str, phase: Callable[..., tuple[str, int | None] | None]) -> None:
    """Patch a function so that it enters a phase first. phase: of its arguments; None: no phase."""
    plain = getattr(owner, name)

    @wraps(plain)
    def entering(*given: Any, **named: Any) -> Any:
        found = phase(*given, **named)
        if found is not None:
            enter(*found)
        return plain(*given, **named)

    setattr(owner, name, entering)


def _after(owner: Any, name: str, act: Callable[..., None]) -> None:
    plain = getattr(owner, name)

    @wraps(plain)
    def followed(*given: Any, **named: Any) -> Any:
        result = plain(*given, **named)
        act(*given, **named)
        return result

    setattr(owner, name, followed)


def _note(loop: Any, *_: Any) -> None:
    """Remember the step of this process; the saver's are written down for all."""
    global _step
    _step = loop.clock.step
    folder = os.environ.get(PLAN)
    if folder is not None and role() in ("rank0", "main"):
        with open(Path(folder) / "steps", "ab", buffering=0) as file:
            file.write(f"{time.monotonic()} {_step} {os.getpid()}\n".encode())


def install() -> None:
    """Patch the phases."""
    from paragan import build
    from paragan.checkpoint.writer import CheckpointWriter
    from paragan.engine.saved_game import SavedGame
    from paragan.engine.training_loop import TrainingLoop
    from paragan.extensions.grid import runner as grid_runner
    from paragan.extensions.grid.evolution import Evolution
    from paragan.extensions.grid.workers.worker import Worker
    from paragan.game.player import Player
    from paragan.loading.loader import Loader
    from paragan.runs import session

    _before(session, "join", lambda *_, **__: ("join", None))
    _before(build, "trainer", lambda *_, **__: ("build", None))
    _before(grid_runner, "evolution_on_workers", lambda *_, **__: ("build", None))
    _before(SavedGame, "resume", lambda *_, **__: ("restore", None))
    _after(SavedGame, "resume", _note)
    _before(Player, "compute_gradients", lambda player, turn, *_, **__: (f"{turn.side.value} turn", None))
    _before(Player, "apply_gradients", lambda *_: ("update", None))
    _before(Loader, "decode", lambda *_: ("decode", None))
    for loop in (TrainingLoop, Evolution):
        _before(loop, "_log_step", lambda *_: ("record", None))
        _after(loop, "_log_step", _note)
    _before(TrainingLoop, "_sample", lambda *_: ("samples", None))
    _before(TrainingLoop, "compute_score", lambda *_: ("score", None))
    _before(CheckpointWriter, "save", lambda writer, step, *_: ("save", step))
    _after(CheckpointWriter, "_write", lambda *_: enter("written"))
    _before(CheckpointWriter, "_prune", lambda *_: ("pruned", None))
    for phase, name in (("membership", "_join"), ("generation", "_evolve"), ("gather", "_gather")):
        _before(Worker, name, lambda *_, phase=phase: (phase, None))
