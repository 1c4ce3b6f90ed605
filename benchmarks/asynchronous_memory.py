"""Memory of the ranks of an asynchronous run, next to data-parallel ranks that train both players.

    python -m benchmarks.asynchronous_memory [--steps 3] [--no-result]

Two processes train on synthetic images of 32 px, in fp32 with a batch of 4 per rank: a pair of MLPs,
of whose memory nearly all is weights, gradients, Adam's moments and averages, and a BigGAN, whose
activations are more than that. Of each rank: the highest resident set before the first checkpoint,
less that of a rank that trains a tiny pair, which has loaded the same libraries.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.cellular_memory import peak
from benchmarks.record import write
from paragan import build
from paragan.config import read_recipe
from paragan.core.local_processes import LocalProcesses
from paragan.core.types import Side

_READY_S = 1800.0
_LOOK_S = 0.2
_END_S = 60.0
_BARE = (
    *("data={name: synthetic, size: 32}", "loss=hinge", "penalties=[]", "augment=null"),
    "train.threads=1",
    *("train.kimg=1000", "evaluation.features=null", "every.sample_kimg=0", "every.log_steps=1"),
    *("g.precision=fp32", "d.precision=fp32", "g.channels_last=false", "d.channels_last=false"),
)
_DDP = ("g.strategy=ddp", "d.strategy=ddp")
CASES = {
    "both players on each rank, ddp": ("train.batch=8", *_DDP),
    "both players on each rank, zero1": ("train.batch=8", "g.strategy=zero1", "d.strategy=zero1"),
    "asynchronous": ("train.batch=4", "scheme=asynchronous"),
    "asynchronous, predict and states in bf16": (
        "train.batch=4",
        "scheme={name: asynchronous, predict: 1.0, state_dtype: bf16, fakes_dtype: bf16}",
    ),
}
MODELS = {
    "mlp": "model={name: mlp, g_widths: [2048, 2048], d_widths: [2048, 2048]}",
    "biggan": "model={name: biggan, width: 64}",
}
TINY = "model={name: dcgan, latent: 4, width: 4}"


def peaks(words: Sequence[str], steps: int) -> list[float]:
    """Return the peak in MB of each of two ranks after some steps; asynchronous: of G, of D."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, LocalProcesses() as processes:
        record = Path(folder) / "run/metrics.jsonl"
        settings = [*_BARE, *words, "devices=2", "--out", f"{folder}/run"]
        command = [sys.executable, "-m", "paragan", "train", "digits", *settings]
        processes.start(command, log=Path(folder) / "log")
        (run,) = processes.processes
        deadline = time.monotonic() + _READY_S
        try:
            while time.monotonic() < deadline and run.poll() is None:
                if _last_step(record) >= steps:
                    return [peak(pid) for pid in _ranks(run.pid)]
                time.sleep(_LOOK_S)
            raise SystemExit(f"no step {steps}: {(Path(folder) / 'log').read_text()[-500:]}")
        finally:
            run.send_signal(signal.SIGKILL)
            processes.wait(_END_S)


def _last_step(record: Path) -> int:
    lines = record.read_text().splitlines()[:-1] if record.exists() else []
    return max((json.loads(line).get("step", 0) for line in lines), default=0)


def _ranks(pid: int) -> list[int]:
    """Return the rank processes that a run has started, in the order of their ranks."""
    texts = (path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    children = [int(word) for text in texts for word in text.split()]
    environment = {one: Path(f"/proc/{one}/environ").read_bytes().split(b"\0") for one in children}
    ranks = {one: word for one, words in environment.items() for word in words if word.startswith(b"RANK=")}
    return sorted(ranks, key=lambda one: int(ranks[one].removeprefix(b"RANK=")))


def weight_mb(words: Sequence[str]) -> dict[str, float]:
    """Return the MB of the weights of G and D in fp32."""
    config = read_recipe("digits", [*_BARE, *words])
    found = build.open_data(config)
    nets = {side: build.network_factory(config, side, found.train, torch.device("cpu")).construct() for side in Side}
    counts = {side: sum(one.numel() for one in net.parameters()) for side, net in nets.items()}
    return {side.value: count * 4 / 2**20 for side, count in counts.items()}


def main() -> None:
    """Print and write the peaks of all cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--no-result", action="store_true")
    given = parser.parse_args()
    found: dict[str, Any] = {"settings": MODELS, "weights_mb": {}}
    found["peak_mb"] = {name: {} for name in MODELS}
    for name, model in MODELS.items():
        found["weights_mb"][name] = weight_mb([model])
    for case, words in CASES.items():
        bare = peaks([*words, TINY], given.steps)
        for name, model in MODELS.items():
            full = peaks([*words, model], given.steps)
            found["peak_mb"][name][case] = [round(a - b) for a, b in zip(full, bare, strict=True)]
            print(f"{name}, {case}: {found['peak_mb'][name][case]} MB", flush=True)
    if not given.no_result:
        write("asynchronous-memory", found)


if __name__ == "__main__":
    main()
