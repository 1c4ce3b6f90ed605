"""A run under many faults: `python -m tests.chaos.campaign STRATEGY COUNT FOLDER`.

The run is disturbed by each fault in turn; whenever its command ends before the run does, what was
broken is repaired (disk space, a mount), and the same command is given again. At the end it is compared with the
undisturbed run. Prints one JSON object: {"injected", "survived", "kinds", "repeated", "failed", ...}.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # which optimisers import
import torch.distributed.fsdp  # noqa: F401

import paragan.runs.train
from paragan.core.local_processes import is_suspended
from paragan.features import _classifier as classifier
from paragan.runs.folder import RunFolder
from tests.chaos import forked, inject
from tests.chaos.faults import SAVE_STEPS, STRATEGIES, Fault, Strategy, draw_faults, num_steps
from tests.processes import children, kill

BATCH = 8
TIMEOUT_S = 4.0  # `train.timeout_s` of every run
_LAUNCH_S = 150.0  # most seconds of one command
_END_S = 3 * TIMEOUT_S + 30.0  # of processes after the command that started them
_MOUNT = "24m"
SETTINGS = (
    *("data.size=8", "model={name: mlp, latent: 8, g_widths: [16], d_widths: [16]}", f"train.batch={BATCH}"),
    *("train.threads=1", f"train.timeout_s={TIMEOUT_S}", "every.log_steps=1", "every.keep=3", "penalties=[]"),
    *(f"every.save_kimg={SAVE_STEPS * BATCH / 1000}", "every.sample_kimg=0.04", "every.score_kimg=0.056"),
    *("evaluation.features=judge", "evaluation.num_images=16", "g.precision=fp32", "d.precision=fp32"),
    "writers=[jsonl, console]",
)
_VOLATILE = ("seconds", "images_per_s", "data_wait", "eta_s", "d/wait_ms", "g/wait_ms")


class Broken(AssertionError):
    """An invariant that does not hold."""


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


def run_to_end(words: Sequence[str], plan: Path, out: Path, limit: int) -> list[int]:
    """Give the command until the run has finished; its exit codes."""
    codes: list[int] = []
    while len(codes) < limit:
        codes.append(launch(words, plan, out))
        repair(out)
        if codes[-1] == 0 and json.loads((out / "exit.json").read_text())["code"] == 0:
            return codes
    raise Broken(f"not finished after {limit} commands: exit codes {codes}")


def launch(words: Sequence[str], plan: Path, out: Path) -> int:
    """Give the command once, wait for it and all that it has started; its exit code."""
    env = {**os.environ, inject.PLAN: str(plan)}
    with open(plan / "log", "ab") as log:
        process = forked.ForkedProcess(["paragan", "train", "digits", *words, "--out", str(out)], env, log, log)
    suspended = 0.0
    deadline = time.monotonic() + _LAUNCH_S
    while process.poll() is None:
        time.sleep(0.02)
        suspended = suspended + 0.02 if is_suspended(process.pid) else 0.0
        if suspended > 1.0:  # nothing else wakes it
            os.kill(process.pid, signal.SIGCONT)
        if time.monotonic() > deadline:
            end_all()
            raise Broken(f"the command did not end within {_LAUNCH_S} s")
    deadline = time.monotonic() + _END_S
    while remaining := descendants():
        if time.monotonic() > deadline:
            end_all()
            raise Broken(f"{len(remaining)} processes still run {_END_S} s after their command")
        time.sleep(0.02)
    return process.wait()


def descendants() -> list[int]:
    """All processes below this one, which adopts orphans; those that have ended are waited for."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return children(os.getpid())


def end_all() -> None:
    for pid in descendants():
        kill(pid)


def repair(out: Path) -> None:
    """Free the disk, and make it writable."""
    (out.parent / "filler").unlink(missing_ok=True)
    while f" {out / 'checkpoints'} " in Path("/proc/mounts").read_text():
        subprocess.run(["umount", str(out / "checkpoints")], check=True, timeout=30)


def trace(out: Path) -> dict[int, dict[str, Any]]:
    """Losses and other numbers of each step in the record, without times."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["kind"] == "step"]
    found = {line["step"]: {k: v for k, v in line.items() if k not in _VOLATILE} for line in steps}
    if list(found) != sorted(found) or len(found) != len(steps):
        raise Broken(f"steps of the record repeat or are out of order: {[line['step'] for line in steps]}")
    return found


def weights(out: Path) -> dict[str, bytes]:
    newest = max((out / "checkpoints").glob("step-*"))
    return {path.name: path.read_bytes() for path in sorted(newest.glob("*.safetensors"))}


def check(strategy: Strategy, out: Path, straight: Path, steps: int) -> None:
    """Raise `Broken` unless the disturbed run is the undisturbed one, and has left nothing behind."""
    found, expected = trace(out), trace(straight)
    if found.keys() != expected.keys() or max(found) != steps:
        raise Broken(f"steps of the record: {list(found)}, undisturbed {list(expected)}")
    if strategy.is_exact:
        differing = [step for step in expected if found[step] != expected[step]]
        if differing:
            at = differing[0]
            raise Broken(f"step {at} differs: {found[at]}, undisturbed {expected[at]}")
        if weights(out) != weights(straight):
            raise Broken("the final weights differ")
    elif not all(math.isfinite(v) for line in found.values() for v in line.values() if isinstance(v, float)):
        raise Broken("losses are not finite")
    RunFolder(out).refuse_in_use()
    debris = [str(path) for path in out.rglob("*") if path.name.endswith(".tmp") or ".tmp-" in path.name]
    if debris:
        raise Broken(f"left behind: {debris}")


def repeated(plan: Path) -> list[int]:
    """Steps that each start of the run did again."""
    found, newest, pid = [], 0, None
    for line in (plan / "steps").read_text().splitlines():
        _, step, process = line.split()
        if process != pid and pid is not None:
            found.append(newest - int(step))
        pid, newest = process, max(newest if process == pid else 0, int(step))
    return found


def attack(name: str, count: int, root: Path) -> dict[str, Any]:
    """Disturb a run of a strategy by `count` faults."""
    strategy = STRATEGIES[name]
    with own_disk(root / "disk") as reason:
        faults = draw_faults(name, count, disk=not reason)
        steps = num_steps(faults)
        words = (*SETTINGS, *strategy.words, f"train.kimg={steps * BATCH / 1000}")
        plans = []
        for number, planned in enumerate(([], faults)):
            plan = root / f"plan-{number}"
            plan.mkdir()
            (plan / "plan.json").write_text(json.dumps([asdict(fault) for fault in planned]))
            (plan / "run").write_text(str(root / "disk" / f"run-{number}"))
            plans.append(plan)
        straight, out = (root / "disk" / f"run-{number}" for number in (0, 1))
        run_to_end(words, plans[0], straight, 1)
        failed, codes = "", []
        try:
            codes = run_to_end(words, plans[1], out, count + 2)
            check(strategy, out, straight, steps)
        except Broken as error:
            failed = str(error)
        again = repeated(plans[1])
        return report(faults, plans[1], failed, again, codes) | {"not_run": reason and f"disk: {reason}"}


def report(faults: list[Fault], plan: Path, failed: str, again: list[int], codes: list[int]) -> dict[str, Any]:
    happened = [fault for fault in faults if (plan / f"fault-{fault.number}").exists()]
    damaged = sum(fault.kind == "flip" for fault in happened)
    if not failed and sum(max(0, n - SAVE_STEPS) for n in again) > damaged * SAVE_STEPS:
        failed = f"repeated {again} steps, with checkpoints every {SAVE_STEPS}"
    if not failed and len(happened) < len(faults):
        failed = f"did not happen: {[str(fault) for fault in faults if fault not in happened]}"
    return {
        "injected": len(happened),
        "survived": 0 if failed else len(happened),
        "kinds": Counter(fault.kind for fault in happened),
        "phases": Counter(fault.phase for fault in happened),
        "most_repeated": max(again, default=0),
        "commands": len(codes),
        "codes": Counter(codes),
        "failed": failed,
    }


def prepare() -> None:
    """Make this process the one that all others are forked from."""
    torch.set_num_threads(1)
    classifier.STEPS = 20  # a judge of little skill judges all runs alike
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans are seen
    inject.install()
    forked.install()


if __name__ == "__main__":
    prepare()
    print(json.dumps(attack(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]).resolve())))
