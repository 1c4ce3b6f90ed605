"""Memory that the plan predicts, next to the measured peak: ten models, two batch sizes, a process for each.

    python -m benchmarks.plan_memory [MODEL ...]

Measured on a CPU: the highest resident set during four steps, less that of the same process after some steps of a small
game, which load torch's libraries. On an accelerator: torch's peak of allocated memory.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import write
from paragan import build
from paragan.config import RunConfig, read_recipe
from paragan.core.types import Batch, Rows, present_tensors
from paragan.extensions.planning.plan_run import PlanRequest, plan_run
from paragan.hardware import device as devices, heap
from paragan.runs.shape_only_data import shape_only_data

_SHAPE, _CLASSES = (3, 32, 32), 10
STEPS = 4
_TIMEOUT_S = 3600.0  # the machine may be shared
_BARE = ("loss=hinge", "penalties=[]")
_R1 = "penalties=[{name: r1, weight: 0.1, interval: 4}]"
CASES: dict[str, tuple[tuple[str, ...], tuple[int, int]]] = {
    "mlp": (("model={name: mlp, g_widths: [1024, 2048], d_widths: [2048, 1024]}", *_BARE), (256, 2048)),
    "dcgan": (("model={name: dcgan, width: 64, d_norm: none}", _R1), (32, 128)),
    "sngan": (("model={name: sngan, width: 64}", *_BARE, "d.updates_per_step=2"), (32, 128)),
    "sagan": (("model={name: sagan, width: 64}", *_BARE), (32, 128)),
    "biggan": (("model={name: biggan, width: 48}", *_BARE, "penalties=[orthogonal]"), (32, 128)),
    "biggan_deep": (("model={name: biggan_deep, width: 64}", *_BARE), (32, 128)),
    "contragan": (
        (
            "model={name: contragan, width: 64}",
            "loss=hinge",
            "penalties=[{name: contrastive, side: d}, {name: contrastive, side: g}]",
        ),
        (32, 128),
    ),
    "reacgan": (
        (
            "model={name: reacgan, width: 64}",
            "loss=hinge",
            "penalties=[{name: data_to_data, side: d}, {name: data_to_data, side: g}]",
        ),
        (32, 128),
    ),
    "stylegan2": (
        (
            "model={name: stylegan2, base: 4096}",
            "penalties=[path_length, {name: r1, interval: 4}]",
            "scheme=synchronous",
        ),
        (8, 16),
    ),
    "r3gan": (("model={name: r3gan, width: 128, groups: 16}", "loss=relativistic", "penalties=[r1, r2]"), (8, 16)),
}


def config_of(model: str, batch: int) -> RunConfig:
    words, _ = CASES[model]
    return read_recipe("digits", [*words, f"train.batch={batch}", "train.threads=1"])


def predicted(model: str, batch: int) -> dict[str, Any]:
    """Peak and terms by the plan, in MB."""
    memory = plan_run(PlanRequest(config=config_of(model, batch), recipe=model, shape=_SHAPE, classes=_CLASSES)).memory
    terms = {name: round(size / 1e6, 1) for name, size in memory.terms.items()}
    return {"device": memory.device, "predicted_mb": round(memory.peak_bytes / 1e6, 1), "terms_mb": terms}


def measured(model: str, batch: int) -> float:
    """Peak of this process in MB, which must be a new one."""
    return measured_peak(config_of(model, batch), _SHAPE, _CLASSES)


def measured_peak(config: RunConfig, shape: tuple[int, int, int], classes: int, steps: int = STEPS) -> float:
    """Peak of this process in MB during steps of a config, after some of a small game."""
    device = devices.select_device(1)
    heap.return_large_blocks(device, shape)
    take_steps(read_recipe("digits", ["train.batch=4"]), device, _SHAPE, _CLASSES)
    gc.collect()
    if device.type != "cpu":
        torch.accelerator.empty_cache()
        torch.accelerator.reset_peak_memory_stats()
        before = torch.accelerator.memory_allocated()
        take_steps(config, device, shape, classes, steps)
        return (torch.accelerator.max_memory_allocated() - before) / 1e6
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again
    before = status_mb("VmRSS")
    take_steps(config, device, shape, classes, steps)
    return status_mb("VmHWM") - before


def take_steps(
    config: RunConfig, device: torch.device, shape: tuple[int, int, int], classes: int, steps: int = STEPS
) -> None:
    """Steps on noise; all penalties are due in each. classes: 0 is no labels."""
    game = build.gan(config, shape_only_data(shape, classes, None), device)
    scheme, batch = build.scheme(config), config.train.batch

    def batches() -> Any:
        for step in count():
            x = torch.rand(batch, *shape, device=device)
            y = torch.randint(classes, (batch,), device=device) if classes else None
            yield Batch(Rows(step=step, first=0, count=batch, total=batch), present_tensors(image=x, label=y))

    stream = batches()
    for _ in range(steps):
        scheme.step(game, stream)
        game.g.version = game.d.version = 0


def status_mb(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024 / 1e6


def measured_in_new_process(model: str, batch: int) -> float:
    words = [sys.executable, "-m", "benchmarks.plan_memory", model, "--measure", "--batch", str(batch)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode:
        raise SystemExit(f"{model}, batch {batch}: {done.stderr.strip()[-400:]}")
    return float(json.loads(done.stdout.splitlines()[-1]))


def compare(model: str, batch: int) -> dict[str, Any]:
    """Prediction, measurement and their difference in percent of the measurement."""
    by_plan = predicted(model, batch)  # computes no tensor
    peak = measured_in_new_process(model, batch)
    error = 100 * (by_plan["predicted_mb"] / peak - 1)
    row = {"model": model, "batch": batch, **by_plan, "measured_mb": round(peak, 1), "error_percent": round(error, 1)}
    print(f"{model:12} {batch:5} {by_plan['predicted_mb']:9.1f} {peak:9.1f} {error:+6.1f} %", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=", ".join(CASES))
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measured(arguments.models[0], arguments.batch)))
        return
    rows = []
    for model in arguments.models or CASES:
        rows += [compare(model, batch) for batch in CASES[model][1]]
    if not arguments.models:
        on = torch.cuda.get_device_name() if rows[0]["device"] != "cpu" else None
        write("plan-memory", {"unit": "MB (1e6 bytes)", "steps": STEPS, "rows": rows}, on=on)


if __name__ == "__main__":
    main()
