"""What must hold of a run at the end of a campaign, whatever happened to it."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paragan.runs.folder import RunFolder
from tests.chaos.faults import SAVE_STEPS, Fault, Strategy

_VOLATILE = ("seconds", "images_per_s", "data_wait", "eta_s", "d/wait_ms", "g/wait_ms")


class Broken(AssertionError):
    """An invariant that does not hold."""


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
    with RunFolder(out):
        pass  # no process uses it
    debris = [str(path) for path in out.rglob("*") if path.name.endswith(".tmp") or ".tmp-" in path.name]
    if debris:
        raise Broken(f"left behind: {debris}")


def repeated(plan: Path) -> list[int]:
    """Steps that each start of the run did again."""
    found, newest, pid = [], 0, None
    steps = plan / "steps"  # absent if no process got as far as a step
    for line in steps.read_text().splitlines() if steps.exists() else ():
        _, step, process = line.split()
        if process != pid and pid is not None:
            found.append(newest - int(step))
        pid, newest = process, max(newest if process == pid else 0, int(step))
    return found


def report(faults: Sequence[Fault], plan: Path, failed: str, codes: Sequence[int]) -> dict[str, Any]:
    again = repeated(plan)
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
        "slowest_recovery_s": slowest_recovery(plan, happened),
        "commands": len(codes),
        "codes": Counter(codes),
        "failed": failed,
    }


def slowest_recovery(plan: Path, faults: Sequence[Fault]) -> float:
    """Return the most seconds from a fault to the next step that the run records."""
    steps = [float(line.split()[0]) for line in (plan / "steps").read_text().splitlines()]
    times = [float((plan / f"fault-{fault.number}").read_text() or 0) for fault in faults]
    waits = [next((step - time for step in steps if step > time), 0.0) for time in times]
    return round(max(waits, default=0.0), 1)
