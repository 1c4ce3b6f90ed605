"""Memory and time of steps at 1024 x 1024: narrow networks here, full ones on an accelerator with enough memory.

    python -m benchmarks.large_images [CASE ...]

Each row has the plan's prediction and the measured peak of a new process (`benchmarks.plan_memory`), and the seconds
of one step. All penalties are due in every step. A row that cannot run says why.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.plan_memory import measured_peak
from benchmarks.record import write
from paragan.config import RunConfig, read_recipe
from paragan.extensions.planning.plan_run import PlanRequest, plan_run
from paragan.hardware import device as devices

SHAPE, CLASSES = (3, 1024, 1024), 0
STEPS = 2  # the second has the state of the optimisers
_TIMEOUT_S = 3600.0  # the machine may be shared
_ONE = ("train.batch=1", "g.micro_batches=1", "d.micro_batches=1")
_HERE = (*_ONE, "train.threads=1", "g.precision=fp32", "d.precision=fp32")

_WITHOUT = ("g.recompute=false", "d.recompute=false")


@dataclass(frozen=True)
class Case:
    """A recipe with `key.path=value` words. accelerator_gb: that it needs (1e9 bytes); None: runs on a CPU."""

    recipe: str
    words: tuple[str, ...]
    accelerator_gb: float | None = None

    @property
    def config(self) -> RunConfig:
        """The config of the case."""
        return read_recipe(self.recipe, list(self.words))


CASES: Mapping[str, Case] = {
    "biggan, width 8": Case("biggan-1024", (*_HERE, "model.width=8")),
    "biggan, width 16": Case("biggan-1024", (*_HERE, "model.width=16")),
    "biggan, width 16, without recompute": Case("biggan-1024", (*_HERE, *_WITHOUT, "model.width=16")),
    "stylegan2, 8 to 64 channels": Case("stylegan2-1024", (*_HERE, "model.base=8192", "model.width=64")),
    "biggan, full width, batch 1": Case("biggan-1024", _ONE, 8),
    "biggan, full width, batch 1, without recompute": Case("biggan-1024", (*_ONE, *_WITHOUT), 16),
    "biggan, full width, as in the recipe": Case("biggan-1024", (), 60),
    "stylegan2, full width, batch 1": Case("stylegan2-1024", _ONE, 8),
    "stylegan2, full width, batch 1, without recompute": Case("stylegan2-1024", (*_ONE, *_WITHOUT), 16),
    "stylegan2, full width, as in the recipe": Case("stylegan2-1024", (), 50),
}


def reason_not_to_run(case: Case) -> str | None:
    """Why this machine cannot run a case; None: it can."""
    if case.accelerator_gb is None:
        return None
    device = devices.select_device()
    if device.type == "cpu":
        return f"no GPU; it needs one of {case.accelerator_gb:g} GB"
    total = torch.get_device_module(device).get_device_properties(device).total_memory / 1e9
    if total < case.accelerator_gb:
        return f"this accelerator has {total:.0f} GB; it needs {case.accelerator_gb:g}"
    return None


def predicted(case: Case) -> dict[str, Any]:
    """Peak and terms by the plan, and what autograd saves in one turn, in MB."""
    plan = plan_run(PlanRequest(config=case.config, recipe=case.recipe, shape=SHAPE, classes=CLASSES))
    memory = plan.memory
    terms = {name: round(size / 1e6, 1) for name, size in memory.terms.items()}
    saved = {name: round(player.saved_by_turn / 1e6, 1) for name, player in plan.model.players.items()}
    peak = round(memory.peak_bytes / 1e6, 1)
    return {"device": memory.device, "predicted_mb": peak, "terms_mb": terms, "saved_by_turn_mb": saved}


def measured(case: Case) -> dict[str, Any]:
    """Peak of this process in MB, which must be a new one, and the mean seconds of a step."""
    began = time.perf_counter(), time.process_time()
    peak = measured_peak(case.config, SHAPE, CLASSES, STEPS)
    wall, cpu = (
        (now - then) / STEPS for now, then in zip((time.perf_counter(), time.process_time()), began, strict=True)
    )
    return {"measured_mb": round(peak, 1), "step_s": round(wall, 2), "step_cpu_s": round(cpu, 2)}


def in_new_process(part: str, name: str) -> dict[str, Any]:
    words = [sys.executable, "-m", "benchmarks.large_images", name, "--part", part]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr.strip()[-400:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def row_of(name: str) -> dict[str, Any]:
    """Prediction, measurement and their difference in percent of the measurement, or why not."""
    case = CASES[name]
    row: dict[str, Any] = {"case": name, "recipe": case.recipe, "words": " ".join(case.words)}
    reason = reason_not_to_run(case)
    if reason is not None:
        print(f"{name}: not run: {reason}", flush=True)
        planned = in_new_process("predicted", name) if case.config.train.batch == 1 else {}
        return {**row, **planned, "result": f"not run: {reason}"}
    row |= in_new_process("measured", name) | in_new_process("predicted", name)
    row["error_percent"] = round(100 * (row["predicted_mb"] / row["measured_mb"] - 1), 1)
    numbers = f"{row['predicted_mb']:,.0f} MB planned, {row['measured_mb']:,.0f} MB measured"
    print(f"{name}: {numbers} ({row['error_percent']:+} %), {row['step_s']} s a step", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="; ".join(CASES))
    parser.add_argument("--part", choices=("predicted", "measured"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part is not None:
        part = predicted if arguments.part == "predicted" else measured
        print(json.dumps(part(CASES[arguments.cases[0]])))
        return
    rows = [row_of(name) for name in arguments.cases or CASES]
    on = next((torch.cuda.get_device_name() for row in rows if row.get("device", "cpu") != "cpu"), None)
    if not arguments.cases:
        write("large-images", {"unit": "MB (1e6 bytes)", "shape": SHAPE, "steps": STEPS, "rows": rows}, on=on)


if __name__ == "__main__":
    main()
