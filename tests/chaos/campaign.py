"""A run under many faults: `python -m tests.chaos.campaign KIND STRATEGY COUNT FOLDER [SEED]`.

KIND: `forks` of one process, which start in milliseconds; `new` processes; two hosts on a `network`.

The run is disturbed by each fault in turn; whenever its command ends before the run does, what was
broken is repaired (disk space, a mount), and the same command is given again. At the end it is compared with the
undisturbed run. Prints one JSON object: {"injected", "survived", "kinds", "repeated", "failed", ...}.
"""

import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, BinaryIO

import torch

from paragan.core.local_processes import is_suspended
from paragan.features.base import classifier as classifier
from tests.chaos import forked, inject
from tests.chaos.faults import (
    SAVE_STEPS,
    SEED,
    STRATEGIES,
    Fault,
    Strategy,
    draw_faults,
    faults_of_new_processes,
    num_steps,
)
from tests.chaos.invariants import Broken, check, report
from tests.chaos.network import change_wire
from tests.processes import ROOT, children, environment, kill

BATCH = 8
TIMEOUT_S = 4.0  # `train.timeout_s` of every run
_LAUNCH_S = 150.0  # most seconds of one command
_END_S = 3 * TIMEOUT_S + 30.0  # of processes after the command that started them
_MOUNT = "24m"
_PAUSE_S = 0.02
Start = Callable[[Sequence[str], Path, BinaryIO], list[forked.ForkedProcess]]  # words, plan, log
SETTINGS = (
    *("data.size=8", "model={name: mlp, latent: 8, g_widths: [16], d_widths: [16]}", f"train.batch={BATCH}"),
    *("train.threads=1", f"train.timeout_s={TIMEOUT_S}", "every.log_steps=1", "every.keep=3", "penalties=[]"),
    *(f"every.save_kimg={SAVE_STEPS * BATCH / 1000}", "every.sample_kimg=0.04", "every.score_kimg=0.056"),
    *("evaluation.features=judge", "evaluation.num_images=16", "g.precision=fp32", "d.precision=fp32"),
    "writers=[jsonl, console]",
)
UNSCORED = ("evaluation.features=null", "every.sample_kimg=0")


@contextmanager
def own_disk(folder: Path) -> Iterator[str]:
    """Mount a small file system at `folder`; yield why that is not possible, or an empty text."""
    folder.mkdir(parents=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={_MOUNT}", "chaos", str(folder)]
    made = subprocess.run(words, capture_output=True, text=True, timeout=30)
    try:
        yield made.stderr.strip()
    finally:
        if made.returncode == 0:
            subprocess.run(["umount", "-l", str(folder)], timeout=30, check=False)


def run_to_end(start: Start, words: Sequence[str], plan: Path, out: Path, limit: int) -> list[int]:
    """Give the command until the run has finished; its exit codes."""
    codes: list[int] = []
    while len(codes) < limit:
        codes.append(launch(start, words, plan, out))
        repair(out)
        if codes[-1] == 0 and json.loads((out / "exit.json").read_text())["code"] == 0:
            return codes
    raise Broken(f"not finished after {limit} commands: exit codes {codes}")


def launch(start: Start, words: Sequence[str], plan: Path, out: Path) -> int:
    """Give the command once, and wait for it and all that it has started; the exit code of its first process."""
    bystanders = set(descendants())  # of the network
    with open(plan / "log", "ab") as log:
        processes = start(("paragan", "train", "digits", *words, "--out", str(out)), plan, log)
    suspended_s = 0.0
    deadline = time.monotonic() + _LAUNCH_S
    while any(process.poll() is None for process in processes):
        time.sleep(_PAUSE_S)
        suspended_s = suspended_s + _PAUSE_S if is_suspended(processes[0].pid) else 0.0
        if suspended_s > 1.0:  # nothing else wakes it
            os.kill(processes[0].pid, signal.SIGCONT)
        if time.monotonic() > deadline:
            end_all(bystanders)
            raise Broken(f"the command did not end within {_LAUNCH_S} s")
    deadline = time.monotonic() + _END_S
    while remaining := set(descendants()) - bystanders:
        if time.monotonic() > deadline:
            end_all(bystanders)
            raise Broken(f"{len(remaining)} processes still run {_END_S} s after their command")
        time.sleep(_PAUSE_S)
    return processes[0].wait()


def start_here(words: Sequence[str], plan: Path, log: BinaryIO) -> list[forked.ForkedProcess]:
    """Start the command in a fork of this process."""
    return [forked.ForkedProcess(words, {**os.environ, inject.PLAN: str(plan)}, log, log)]


def descendants() -> list[int]:
    """All processes below this one, which adopts orphans; those that have ended are waited for."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return children(os.getpid())


def end_all(bystanders: set[int]) -> None:
    for pid in set(descendants()) - bystanders:
        kill(pid)


def repair(out: Path) -> None:
    """Free the disk, make it writable, and restore the network."""
    (out.parent / "filler").unlink(missing_ok=True)
    if (wire := inject.wire_of(out)).exists():
        change_wire(wire, 0.0)
    while f" {out / 'checkpoints'} " in Path("/proc/mounts").read_text():
        subprocess.run(["umount", str(out / "checkpoints")], check=True, timeout=30)


def start_new(*launcher: str) -> Start:
    """Return a function that starts the command in a new process. launcher: what starts the module `paragan`."""

    def start(words: Sequence[str], plan: Path, log: BinaryIO) -> list[Any]:
        paths = (Path(__file__).with_name("new_process"), ROOT, ROOT / "src")
        env = environment(PYTHONPATH=os.pathsep.join(map(str, paths)), **{inject.PLAN: str(plan)})
        command = [sys.executable, *launcher, "-m", *words]
        options = {"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL, "start_new_session": True}
        return [subprocess.Popen(command, env=env, **options)]

    return start


def attack_new_processes(name: str, root: Path) -> dict[str, Any]:
    """Disturb a run whose processes are no forks, so that they import what they need."""
    (root / "disk").mkdir(parents=True)
    faults = faults_of_new_processes(name)
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=2")
    start, words = (start_new(), ("devices=2",)) if name == "devices" else (start_new(*torchrun), ())
    longer = "train.timeout_s=10"  # to import
    return disturb(start, replace(STRATEGIES["ddp"], words=(*words, *UNSCORED, longer)), faults, root) | {"not_run": ""}


def attack_briefly(name: str, root: Path) -> dict[str, Any]:
    """Disturb a run by one fault of each kind that costs no time-out."""
    with own_disk(root / "disk") as reason:
        kinds = [("kill", "rank1", "d turn"), ("clock", "rank0", "record"), ("term", "rank1", "update")]
        kinds += [("decode", "rank0", "decode"), ("flip", "rank0", "record"), ("kill", "rank0", "written")]
        kinds += [] if reason else [("full", "rank0", "save")]
        faults = [Fault(*one, 2 * SAVE_STEPS + 2 * number, number) for number, one in enumerate(kinds)]
        strategy = replace(STRATEGIES[name], words=(*STRATEGIES[name].words, *UNSCORED))
        return disturb(start_here, strategy, faults, root) | {"not_run": reason and f"disk: {reason}"}


def attack(name: str, count: int, root: Path, seed: int = SEED) -> dict[str, Any]:
    """Disturb a run of a strategy by `count` faults; what it prints."""
    strategy = STRATEGIES[name]
    with own_disk(root / "disk") as reason:
        faults = draw_faults(name, count, seed, disk=not reason)
        return disturb(start_here, strategy, faults, root) | {"not_run": reason and f"disk: {reason}"}


def disturb(start: Start, strategy: Strategy, faults: Sequence[Fault], root: Path) -> dict[str, Any]:
    """Run without and with faults, and compare."""
    steps = num_steps(faults)
    words = (*SETTINGS, *strategy.words, f"train.kimg={steps * BATCH / 1000}")
    straight, out = (root / "disk" / name for name in ("straight", "run"))
    run_to_end(start, words, write_plan(root / "straight", [], straight), straight, 1)
    plan = write_plan(root / "plan", faults, out)
    failed = ""
    codes: list[int] = []
    try:
        codes = run_to_end(start, words, plan, out, len(faults) + 2)
        check(strategy, out, straight, steps)
    except Broken as error:
        failed = str(error)
    return report(faults, plan, failed, codes)


def write_plan(folder: Path, faults: Sequence[Fault], out: Path) -> Path:
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps([asdict(fault) for fault in faults]))
    (folder / "run").write_text(str(out))
    return folder


def prepare() -> None:
    """Make this process the one that all others are forked from."""
    for name in ("torch._dynamo", "torch.distributed.fsdp"):  # which optimisers and strategies import
        importlib.import_module(name)
    torch.set_num_threads(1)
    classifier.STEPS = 20  # a judge of little skill judges all runs alike
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans are seen
    inject.install()
    forked.install()


def main(kind: str, name: str, count: str, folder: str, seed: str = str(SEED)) -> dict[str, Any]:
    """Run one campaign; kind: forks, new or network."""
    root = Path(folder).resolve()
    prepare()
    if kind == "brief":
        return attack_briefly(name, root)
    if kind == "new":
        return attack_new_processes(name, root)
    if kind == "network":
        from tests.chaos import network_campaign

        return network_campaign.attack(name, int(count), root, int(seed))
    return attack(name, int(count), root, int(seed))


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
